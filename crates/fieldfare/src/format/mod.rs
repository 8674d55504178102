//! The model directory on disk: manifest, layout, resident index, tile order, receipt, verification.
