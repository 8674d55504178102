//! `tokenizer.json`: refused, or a tokenizer that encodes and decodes anything.
#![no_main]
use fieldfare::tokenizer::Tokenizer;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(tokenizer) = Tokenizer::from_json(bytes) {
        let mut ids = Vec::new();
        tokenizer.encode("Grüße, 你好 🎉\n<|turn>\t  x", &mut ids);
        tokenizer.encode_with_control("a<|turn>b<turn|> <bos>", &mut ids);
        let _ = tokenizer.decode(&ids, true);
        let _ = tokenizer.decode(&[0, 1, u32::MAX], false);
    }
});
