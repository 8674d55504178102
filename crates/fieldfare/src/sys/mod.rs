//! What differs between platforms, one small file for each concern.

pub mod buffer;
pub(crate) mod disk;
pub mod fault;
pub mod file;
pub mod group;
pub mod lock;
pub mod machine;
pub mod map;
pub mod memory;
pub mod pages;
pub mod paths;
pub mod size;
pub mod volume;
