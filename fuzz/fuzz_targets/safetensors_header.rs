//! The header of a safetensors file. The first eight bytes say how many bytes of payload follow it; the same input
//! is also read as a whole file.
#![no_main]
use fieldfare::format::safetensors::Header;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = Header::read("m.safetensors", &mut &bytes[..], bytes.len() as u64);
    let Some((payload, text)) = bytes.split_first_chunk::<8>() else { return };
    let payload = u64::from_le_bytes(*payload);
    if let Ok(header) = Header::parse("m.safetensors", text.to_vec(), payload) {
        let mut end = 8 + text.len() as u64;
        for tensor in &header.tensors {
            assert_eq!(tensor.offset, end, "a gap or an overlap");
            assert_eq!(tensor.shape.iter().product::<u64>() * tensor.dtype.size(), tensor.len);
            end += tensor.len;
        }
        assert_eq!(end, 8 + text.len() as u64 + payload, "the tensors do not fill the payload");
    }
});
