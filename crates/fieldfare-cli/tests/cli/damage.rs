//! Each kind of damage to a model directory: a message of its own that names the file, and a hint.

use crate::support::{Home, Ran, copy, tiny_model};
use std::path::Path;

struct Damage {
    name: &'static str,
    /// What the message must name.
    says: &'static str,
    /// Whether opening finds it; hashes are the business of `verify`.
    found_on_opening: bool,
    inflict: fn(&Path),
}

fn change(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    edit(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

const DAMAGES: &[Damage] = &[
    Damage {
        name: "no manifest",
        says: "manifest.json",
        found_on_opening: true,
        inflict: |dir| std::fs::remove_file(dir.join("manifest.json")).unwrap(),
    },
    Damage {
        name: "manifest cut short",
        says: "manifest.json",
        found_on_opening: true,
        inflict: |dir| change(&dir.join("manifest.json"), |bytes| bytes.truncate(bytes.len() / 2)),
    },
    Damage {
        name: "layer file missing",
        says: "layer_03.bin",
        found_on_opening: true,
        inflict: |dir| std::fs::remove_file(dir.join("packed_experts/layer_03.bin")).unwrap(),
    },
    Damage {
        name: "layer file cut short",
        says: "layer_02.bin",
        found_on_opening: true,
        inflict: |dir| {
            change(&dir.join("packed_experts/layer_02.bin"), |bytes| bytes.truncate(bytes.len() - 1));
        },
    },
    Damage {
        name: "resident file missing",
        says: "model_weights.bin",
        found_on_opening: true,
        inflict: |dir| std::fs::remove_file(dir.join("model_weights.bin")).unwrap(),
    },
    Damage {
        name: "layout changed",
        says: "layout.json",
        found_on_opening: true,
        inflict: |dir| change(&dir.join("packed_experts/layout.json"), |bytes| bytes.push(b' ')),
    },
    Damage {
        name: "a letter changed in the tokenizer",
        says: "tokenizer.json",
        found_on_opening: true,
        inflict: |dir| {
            change(&dir.join("tokenizer/tokenizer.json"), |bytes| {
                let at = bytes.windows(10).position(|word| word == b"<unused99>").unwrap();
                bytes[at + 1] ^= 32;
            });
        },
    },
    Damage {
        name: "a bit flipped in a layer file",
        says: "layer_01.bin",
        found_on_opening: false,
        inflict: |dir| change(&dir.join("packed_experts/layer_01.bin"), |bytes| bytes[1000] ^= 1),
    },
    Damage {
        name: "a bit flipped in the weights",
        says: "model_weights.bin",
        found_on_opening: false,
        inflict: |dir| {
            change(&dir.join("model_weights.bin"), |bytes| {
                let at = bytes.len() - 5000;
                bytes[at] ^= 1;
            });
        },
    },
];

fn run(home: &Home, model: &Path, args: &[&str]) -> Ran {
    let mut command = home.command(args);
    command.env("FIELDFARE_MODEL", model);
    crate::support::ran(command)
}

#[test]
fn each_damage_has_its_own_message() {
    let home = Home::new();
    let mut seen = std::collections::HashSet::new();
    for (index, damage) in DAMAGES.iter().enumerate() {
        let model = home.path(&format!("m{index}.gturbo"));
        copy(tiny_model(), &model);
        (damage.inflict)(&model);
        let ran = run(&home, &model, &["verify"]);
        let err = ran.fails(1, damage.says).to_owned();
        assert!(err.contains("hint: "), "{}: {err}", damage.name);
        // The path of the copy tells them apart and must not.
        assert!(seen.insert(err.replace(&*model.to_string_lossy(), "")), "{}: {err}", damage.name);
        if damage.found_on_opening {
            let ran = run(&home, &model, &["generate", "--prompt", "x", "--json"]);
            ran.fails(1, damage.says);
        }
        std::fs::remove_dir_all(&model).unwrap();
    }
}
