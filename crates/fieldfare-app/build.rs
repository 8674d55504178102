//! Gives the program's file its icon and version on Windows, where they are a part of it. Other systems take theirs from
//! `packaging/`. The resources are written here as the linker of MSVC reads them (a `.res` file); the linker of GNU wants
//! an object file, which `windres` makes of it if it is there.

// They are public where they are a part of the program.
#![allow(unreachable_pub)]

#[path = "src/icon/pixels.rs"]
mod pixels;
#[path = "src/icon/windows.rs"]
mod windows;

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/icon");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "windows" {
        return;
    }
    let folder = variable("OUT_DIR");
    let resources = Path::new(&folder).join("fieldfare.res");
    let number = |part: &str| variable(part).parse().unwrap_or(0);
    let version =
        ["CARGO_PKG_VERSION_MAJOR", "CARGO_PKG_VERSION_MINOR", "CARGO_PKG_VERSION_PATCH"].map(number);
    let written = std::fs::write(&resources, windows::resources(&windows::icon(pixels::pixels), version));
    if let Err(error) = written {
        println!("cargo::warning=the program gets no icon: {}: {error}", resources.display());
        return;
    }
    if variable("CARGO_CFG_TARGET_ENV") == "msvc" {
        println!("cargo::rustc-link-arg-bins={}", resources.display());
        return;
    }
    let object = Path::new(&folder).join("fieldfare-resources.o");
    let tool = format!("{}-w64-mingw32-windres", variable("CARGO_CFG_TARGET_ARCH"));
    let made = [tool.as_str(), "windres"].into_iter().any(|tool| {
        let mut command = Command::new(tool);
        command.arg("-J").arg("res").arg(&resources).arg("-O").arg("coff").arg(&object);
        command.status().is_ok_and(|status| status.success())
    });
    if made {
        println!("cargo::rustc-link-arg-bins={}", object.display());
    } else {
        println!("cargo::warning=the program gets no icon: there is no windres");
    }
}
