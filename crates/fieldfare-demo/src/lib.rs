//! The demonstration model: a small checkpoint inside the program, so that a first command needs no download.
//!
//! It is a toy, and everything that shows it says so. What it is not is a special case: [`ensure`] unpacks it once into
//! an ordinary model directory, with the ordinary installer, and from there on it is opened, verified, streamed and
//! cached like any other model.
//!
//! ```text
//! embedded   the files, their identity, the number of parameters
//! unpack     where the model directory is, whether it is this program's, making it
//! ```

mod embedded;
mod unpack;

pub use embedded::{IDENTITY, parameters, size_in_words};
pub use unpack::{DIRECTORY, Ready, Step, ensure, ensure_in, folders, is_demo};

/// What people write in place of a model directory.
pub const NAME: &str = "demo";
