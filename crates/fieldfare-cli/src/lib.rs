//! The `fieldfare` command as a library, so that everything but `main` is testable.
