//! The second process of the desktop app by itself.

fn main() {
    std::process::exit(fieldfare_app_worker::serve_decode());
}
