use super::*;

#[test]
fn positioned_reads_and_writes() {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    dir.create_dir("a").unwrap();
    let file = dir.create_file("a/b").unwrap();
    write_all_at(&file, b"hello", 3).unwrap();
    assert_eq!(dir.create_file("a/b").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let file = dir.open_file("a/b").unwrap();
    let mut five = [0; 5];
    read_exact_at(&file, &mut five, 3).unwrap();
    assert_eq!(&five, b"hello");
    assert_eq!(read_exact_at(&file, &mut five, 4).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(dir.entries(1).unwrap(), [DirEntry { name: "a".into(), is_dir: true }]);
    assert!(dir.open_file("a").is_err(), "a directory is not a file");
    assert!(dir.open_file("a/b/c").is_err());
    dir.create_file("z").unwrap();
    assert!(dir.entries(1).is_err());
}

#[test]
fn atomic_write_replaces() {
    let root = tempfile::tempdir().unwrap();
    let dir = Dir::open(root.path()).unwrap();
    write_atomic(&dir, root.path(), "x", b"one").unwrap();
    write_atomic(&dir, root.path(), "x", b"two").unwrap();
    assert_eq!(std::fs::read(root.path().join("x")).unwrap(), b"two");
    assert_eq!(dir.entries(9).unwrap().len(), 1, "no temporary is left");
}

#[test]
fn absolute_by_text() {
    assert_eq!(lexical_absolute(Path::new("/a//b/./../c/")).unwrap(), Path::new("/a/c"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(lexical_absolute(Path::new("x/..")).unwrap(), lexical_absolute(&here).unwrap());
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_fifos_and_devices_are_refused_in_every_position() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join("d/f"), "x").unwrap();
        symlink("f", root.path().join("d/link")).unwrap();
        symlink("d", root.path().join("dirlink")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let dir = Dir::open(root.path()).unwrap();
        dir.open_file("d/f").unwrap();
        for bad in ["d/link", "dirlink/f", "fifo", "d", "gone"] {
            assert!(dir.open_file(bad).is_err(), "{bad}");
        }
        assert!(dir.open_dir("dirlink").is_err());
        let entry = dir.entries(9).unwrap().into_iter().find(|e| e.name == "dirlink").unwrap();
        assert!(!entry.is_dir);
    }

    #[test]
    fn the_root_may_be_a_link_and_stays_what_it_was() {
        let root = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join("f"), name).unwrap();
        }
        let link = root.path().join("link");
        symlink("one", &link).unwrap();
        let dir = Dir::open(&link).unwrap();
        std::fs::remove_file(&link).unwrap();
        symlink("two", &link).unwrap();
        assert_eq!(std::io::read_to_string(dir.open_file("f").unwrap()).unwrap(), "one");
    }

    #[test]
    fn renames_keep_what_exists() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        std::fs::write(&a, "a").unwrap();
        std::fs::write(&b, "b").unwrap();
        assert_eq!(rename_new(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        if let Err(e) = exchange(&a, &b) {
            assert_eq!(e.kind(), io::ErrorKind::Unsupported);
        } else {
            assert_eq!(std::fs::read(&a).unwrap(), b"b");
        }
        rename_new(&a, &root.path().join("c")).unwrap();
    }
}
