//! The engine: opens a model directory, owns sessions, runs the token loop.
