//! JSON schemas of strangers: read or refused by name, never more.
#![no_main]

use fieldfare::grammar::Schema;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    for strict in [false, true] {
        match Schema::parse(&value, "schema", strict) {
            Ok(schema) => assert!(schema.bytes() <= fieldfare::grammar::BYTES),
            Err(error) => assert!(error.to_string().starts_with("schema"), "{error}"),
        }
    }
});
