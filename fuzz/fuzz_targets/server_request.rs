//! Bodies of the server's requests: taken or refused with a code, never more.
#![no_main]

use fieldfare::grammar::{BYTES, Rules};
use fieldfare::sample::Sampling;
use fieldfare_server::wire::chat::{ChatRequest, Served};
use fieldfare_server::wire::completions::CompletionRequest;
use fieldfare_server::wire::fields;
use fieldfare_server::wire::tools::Tools;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let served = Served {
        id: "m".to_owned(),
        aliases: Vec::new(),
        any_name: false,
        vocabulary: 1000,
        context: 4096,
        sampling: Sampling::default(),
        thinking: false,
    };
    let mut map = match fields::object(bytes) {
        Ok(map) => map,
        Err(error) => {
            assert_eq!((error.status, error.code), (400, "invalid_json"));
            return;
        }
    };
    map.insert("model".to_owned(), "m".into());
    if let Ok(request) = ChatRequest::parse(&map, &served) {
        let Tools { rules: calls, choice, .. } = request.tools;
        let rules = Rules { content: request.format, calls, choice, ..Rules::default() };
        // What every grammar takes comes to that.
        assert!(rules.bytes() <= BYTES + (1 << 20), "{}", rules.bytes());
    }
    for refusal in [ChatRequest::parse(&map, &served).err(), CompletionRequest::parse(&map, &served).err()] {
        if let Some(error) = refusal {
            assert!(error.status == 400 && error.code != "internal_error", "{error:?}");
            assert!(error.param.is_some(), "{error:?}");
        }
    }
});
