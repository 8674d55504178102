use super::*;
use crate::format::open::tests::build;
use crate::format::{ReceiptState, inspect};

fn run(path: &Path) -> Result<VerifyReport> {
    verify(path, &VerifyOptions::default(), &mut |_| ControlFlow::Continue(()))
}

fn receipt_of(path: &Path) -> ReceiptState {
    ModelDir::open(path, Integrity::Receipt).unwrap().receipt().clone()
}

#[test]
fn a_receipt_is_written_and_valid_where_it_should_be() {
    for layout in [Layout::V1, Layout::Tiled] {
        let parent = tempfile::tempdir().unwrap();
        let (here, there) = (parent.path().join("here"), parent.path().join("there"));
        std::fs::create_dir(&here).unwrap();
        build(&here, layout);
        let report = run(&here).unwrap();
        assert_eq!(report.receipt, ReceiptOutcome::Written);
        assert_eq!((report.files, report.strays.len(), report.layout), (5, 0, layout));
        assert_eq!(
            report.warnings.len(),
            2,
            "no tokenizer.json, no tokenizer_config.json: {:?}",
            report.warnings
        );
        assert!(matches!(receipt_of(&here), ReceiptState::Valid(_)));
        std::fs::rename(&here, &there).unwrap();
        match (layout, receipt_of(&there)) {
            (Layout::V1, ReceiptState::Invalid(reason)) => {
                assert!(reason.contains("modelDirectoryPath"), "{reason}");
            }
            (Layout::Tiled, ReceiptState::Valid(receipt)) => assert_eq!(receipt.model_directory_path, None),
            (_, state) => panic!("{layout}: {state:?}"),
        }
        run(&there).unwrap();
        assert!(matches!(receipt_of(&there), ReceiptState::Valid(_)), "verified again under its new path");
    }
}

#[test]
fn provenance_survives() {
    let root = tempfile::tempdir().unwrap();
    let manifest = build(root.path(), Layout::Tiled);
    let mut receipt = Receipt::new(&manifest, &manifest.encode(), "", "installer", std::time::UNIX_EPOCH);
    receipt.source_repo_id = Some("owner/name".into());
    receipt.source_revision = Some("c0ffee".into());
    std::fs::write(root.path().join(RECEIPT), receipt.encode()).unwrap();
    run(root.path()).unwrap();
    let source = inspect(root.path()).unwrap().source;
    assert_eq!((source.repo_id.as_deref(), source.revision.as_deref()), (Some("owner/name"), Some("c0ffee")));
}

#[test]
fn damage_leaves_the_receipt_alone_and_every_file_is_looked_at() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), Layout::V1);
    run(root.path()).unwrap();
    let before = std::fs::read(root.path().join(RECEIPT)).unwrap();
    for path in ["packed_experts/layer_00.bin", "tokenizer/config.json"] {
        let file = root.path().join(path);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[1] ^= 0x80;
        std::fs::write(file, bytes).unwrap();
    }
    let mut faults = Vec::new();
    let error = verify(root.path(), &VerifyOptions::default(), &mut |progress| {
        if let VerifyProgress::Fault { message } = progress {
            faults.push(message.to_owned());
        }
        ControlFlow::Continue(())
    })
    .unwrap_err()
    .to_string();
    assert!(error.starts_with("packed_experts/layer_00.bin: expected SHA-256"), "{error}");
    assert!(error.ends_with("(1 more files are wrong)"), "{error}");
    assert!(faults.len() == 2 && faults[1].starts_with("tokenizer/config.json"), "{faults:?}");
    assert_eq!(std::fs::read(root.path().join(RECEIPT)).unwrap(), before);
}

#[test]
fn strays_are_listed_and_litter_is_not() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), Layout::V1);
    for path in [
        ".DS_Store",
        "packed_experts/._layer_00.bin",
        "tokenizer/.DS_Store",
        ".Spotlight-V100",
        "tokenizer/extra.json",
        "notes",
    ] {
        std::fs::write(root.path().join(path), "x").unwrap();
    }
    std::fs::create_dir_all(root.path().join("deep/er")).unwrap();
    let report = run(root.path()).unwrap();
    assert_eq!(report.strays, ["deep", "notes", "tokenizer/extra.json"]);
}

#[test]
fn progress_adds_up_and_may_stop_the_work() {
    let root = tempfile::tempdir().unwrap();
    build(root.path(), Layout::V1);
    let mut last = (0, 1);
    let options = VerifyOptions { write_receipt: false, ..VerifyOptions::default() };
    let report = verify(root.path(), &options, &mut |progress| {
        if let VerifyProgress::Bytes { done, total } = progress {
            assert!(done > last.0);
            last = (done, total);
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(last, (report.bytes, report.bytes));
    assert_eq!(report.receipt, ReceiptOutcome::Skipped);
    assert!(!root.path().join(RECEIPT).exists());
    let stopped = verify(root.path(), &options, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Cancelled)));
}

#[cfg(unix)]
#[test]
fn a_link_in_the_receipts_place_is_replaced_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let outside = tempfile::NamedTempFile::new().unwrap();
    build(root.path(), Layout::V1);
    std::os::unix::fs::symlink(outside.path(), root.path().join(RECEIPT)).unwrap();
    assert!(matches!(receipt_of(root.path()), ReceiptState::Invalid(_)));
    run(root.path()).unwrap();
    assert!(matches!(receipt_of(root.path()), ReceiptState::Valid(_)));
    assert_eq!(outside.as_file().metadata().unwrap().len(), 0);
}

#[test]
fn inspection_describes_both_layouts() {
    for (layout, tiled) in [(Layout::V1, 0), (Layout::Tiled, 13)] {
        let root = tempfile::tempdir().unwrap();
        build(root.path(), layout);
        let found = inspect(root.path()).unwrap();
        assert_eq!((found.layout, found.receipt.as_str(), found.has_tokenizer), (layout, "absent", false));
        assert_eq!(found.tensors.tiled, tiled, "seven matrices in the sliding layer, six in the full one");
        assert_eq!(
            found.tensors.total,
            found.tensors.tiled + found.tensors.source_order + found.tensors.plain
        );
        assert_eq!(found.full_attention_layers, [1]);
        assert_eq!(found.memory.slots_per_layer, 3, "no more slots than experts");
        let sum: u64 = std::fs::read_dir(root.path())
            .unwrap()
            .chain(std::fs::read_dir(root.path().join("packed_experts")).unwrap())
            .chain(std::fs::read_dir(root.path().join("tokenizer")).unwrap())
            .map(|entry| entry.unwrap().metadata().unwrap())
            .filter(std::fs::Metadata::is_file)
            .map(|meta| meta.len())
            .sum();
        assert_eq!(found.sizes.total_bytes, sum);
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["layout"], layout.to_string());
        assert_eq!(json["architecture"]["hidden_size"], 128);
    }
}
