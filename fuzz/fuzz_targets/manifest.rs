//! `manifest.json` and `verified-install.json`: any bytes are refused or round-trip.
#![no_main]
use fieldfare::format::{Manifest, Receipt};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let encoded = manifest.encode();
        let again = Manifest::parse(&encoded).expect("our own form is accepted");
        assert_eq!(encoded, again.encode());
        let _ = manifest.check_runnable();
    }
    if let Ok(receipt) = Receipt::parse(bytes) {
        let again = Receipt::parse(&receipt.encode()).expect("our own form is accepted");
        assert_eq!(receipt.encode(), again.encode());
    }
});
