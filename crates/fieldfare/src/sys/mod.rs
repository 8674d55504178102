//! What differs between platforms, one small file for each concern.

pub mod file;
pub mod map;
