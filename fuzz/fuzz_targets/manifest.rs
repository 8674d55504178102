//! `manifest.json` and `verified-install.json`: any bytes are refused or round-trip.
#![no_main]
use fieldfare::format::{CAP_MANIFEST, CAP_RECEIPT, Manifest, Receipt};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::parse(bytes) {
        let encoded = manifest.encode();
        // Our form is longer than a compact one, so the largest documents do not come back.
        if encoded.len() as u64 <= CAP_MANIFEST {
            let again = Manifest::parse(&encoded).expect("our own form is accepted");
            assert_eq!(encoded, again.encode());
        }
        let _ = manifest.check_runnable();
    }
    if let Ok(receipt) = Receipt::parse(bytes) {
        let encoded = receipt.encode();
        if encoded.len() as u64 <= CAP_RECEIPT {
            let again = Receipt::parse(&encoded).expect("our own form is accepted");
            assert_eq!(encoded, again.encode());
        }
    }
});
