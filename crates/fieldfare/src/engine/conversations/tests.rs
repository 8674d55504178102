//! Which conversation a prompt goes on from, and who gives way, with a model that keeps ids and nothing else.

use super::*;
use crate::engine::tests::{Fed, Scripted};
use std::ops::ControlFlow;

/// A model with room for so many ids and windows of 4.
fn model(room: u64) -> Scripted {
    let mut model = Scripted::noisy();
    model.room = room;
    model.context = 4096;
    model.text = model.text.with_memory(4);
    model
}

/// Asks for an answer of `made` ids; returns how the prompt was met and how much of it was there.
fn ask(
    talks: &mut Conversations<Fed>,
    model: &mut Scripted,
    prompt: &[u32],
    system_end: Option<usize>,
    made: &[u32],
) -> (Reuse, usize) {
    let reuse = talks.open(model, prompt);
    let cached = talks.current().len();
    assert_eq!(talks.current(), &prompt[..cached]);
    assert_eq!(model.text.ids, prompt[..cached]);
    talks.set_points(model, prompt.len(), system_end, prompt.len());
    model.prefill(&prompt[cached..], &mut |_| ControlFlow::Continue(())).expect("it is not stopped");
    talks.set(prompt);
    for &id in made {
        talks.make_space(model, 1, 0);
        model.decode(id).expect("it does not fail");
        talks.push(id);
    }
    (reuse, cached)
}

fn ids(from: u32, count: usize) -> Vec<u32> {
    (from..).take(count).map(|id| id % 500).collect()
}

/// The next prompt: the answer stands where the last four ids of the prompt stood.
fn next(prompt: &[u32], made: &[u32], more: &[u32]) -> Vec<u32> {
    [&prompt[..prompt.len() - 4], made, more].concat()
}

#[test]
fn turns_titles_edits_and_branches() {
    let (mut model, mut talks) = (model(u64::MAX), Conversations::new(4, None));
    let (prompt, made) = (ids(0, 200), ids(300, 40));
    assert_eq!(ask(&mut talks, &mut model, &prompt, None, &made), (Reuse::New, 0));
    let second = next(&prompt, &made, &ids(350, 30));
    // The answer is behind what the window shows, the point before it is not: 8 ids before the prompt's end.
    assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Continued, 192));
    assert_eq!(talks.kept().in_memory, 1, "the answer in its old place is of no use to anybody");
    // A title is another talk.
    assert_eq!(ask(&mut talks, &mut model, &ids(450, 40), None, &made), (Reuse::New, 0));
    let third = next(&second, &made, &ids(370, 30));
    assert_eq!(ask(&mut talks, &mut model, &third, None, &made), (Reuse::Continued, second.len() - 8));
    assert_eq!(talks.kept().in_memory, 2);
    // The same prompt again.
    assert_eq!(ask(&mut talks, &mut model, &third, None, &made), (Reuse::Continued, third.len() - 8));
    // An edit of the second message: the point before it is still there. What was edited stays beside it.
    let edit = [&second[..210], &ids(11, 50)[..]].concat();
    assert_eq!(ask(&mut talks, &mut model, &edit, None, &made), (Reuse::Window, 192));
    let fourth = next(&third, &made, &ids(380, 30));
    assert_eq!(ask(&mut talks, &mut model, &fourth, None, &made), (Reuse::Continued, third.len() - 8));
    let edited = next(&edit, &made, &ids(20, 30));
    assert_eq!(ask(&mut talks, &mut model, &edited, None, &made), (Reuse::Continued, edit.len() - 8));
    assert_eq!(talks.kept().in_memory, 3);
    assert_eq!(talks.kept().evicted, 0);
}

#[test]
fn a_system_turn_serves_many() {
    let (mut model, mut talks) = (model(u64::MAX), Conversations::new(8, None));
    let system = ids(0, 300);
    for (number, wanted) in [(0, (Reuse::New, 0)), (1, (Reuse::Edited, 300)), (2, (Reuse::Edited, 300))] {
        let prompt = [&system[..], &ids(310 + 20 * number, 90)[..]].concat();
        assert_eq!(ask(&mut talks, &mut model, &prompt, Some(300), &ids(40, 30)), wanted);
    }
}

#[test]
fn the_least_recently_used_give_way_and_are_missed_by_name() {
    // Room for a little more than two talks of 240.
    let (mut model, mut talks) = (model(600), Conversations::new(8, None));
    let prompt = |number: u32| ids(100 * number, 200);
    let made = ids(7, 40);
    for number in 0..4 {
        ask(&mut talks, &mut model, &prompt(number), None, &made);
        assert!(model.excess(0, 0) == 0, "{}", number);
    }
    assert!(talks.kept().evicted >= 1, "{:?}", talks.kept());
    let again = |number| next(&prompt(number), &made, &ids(450, 20));
    assert_eq!(ask(&mut talks, &mut model, &again(0), None, &made), (Reuse::Evicted, 0));
    assert_eq!(ask(&mut talks, &mut model, &again(3), None, &made), (Reuse::Continued, 192));
    // By count, too.
    let (mut model, mut few) = (self::model(u64::MAX), Conversations::new(2, None));
    for number in 0..3 {
        ask(&mut few, &mut model, &prompt(number), None, &made);
    }
    assert_eq!((few.kept().in_memory, few.kept().evicted), (2, 1));
    let (mut model, mut none) = (self::model(u64::MAX), Conversations::new(0, None));
    ask(&mut none, &mut model, &prompt(0), None, &made);
    assert!(model.text.points().is_empty());
}

#[test]
fn many_titles_do_not_push_a_conversation_out() {
    let (mut model, mut talks) = (model(u64::MAX), Conversations::new(4, None));
    let (prompt, made) = (ids(0, 400), ids(300, 40));
    ask(&mut talks, &mut model, &prompt, None, &made);
    for title in 0..12 {
        ask(&mut talks, &mut model, &ids(40 * title + 7, 30), None, &ids(9, 5));
    }
    assert_eq!(talks.kept().in_memory, 4);
    let second = next(&prompt, &made, &ids(350, 30));
    assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Continued, 392));
}

#[test]
fn files_outlive_the_process_and_damaged_ones_are_left_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = |identity| Some(Snapshots::open(dir.path(), 1 << 20, [identity; 32]).expect("a folder"));
    let prompt = |number: u32| ids(100 * number, 400);
    let made = ids(7, 40);
    {
        let (mut model, mut talks) = (model(600), Conversations::new(8, open(1)));
        for number in 0..3 {
            ask(&mut talks, &mut model, &prompt(number), None, &made);
        }
        assert_eq!((talks.kept().in_memory, talks.kept().on_disk), (1, 2));
        // One that is not in memory any more.
        let second = next(&prompt(0), &made, &ids(450, 20));
        assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Restored, 392));
        talks.save_all(&mut model);
        assert_eq!(talks.kept().on_disk, 3, "the first one went on");
        assert!(talks.notes().is_empty());
    }
    let (mut model, mut talks) = (model(u64::MAX), Conversations::new(8, open(1)));
    for number in [1, 2] {
        let second = next(&prompt(number), &made, &ids(450, 20));
        assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Restored, 392));
    }
    assert_eq!(Conversations::<Fed>::new(8, open(2)).kept().on_disk, 0, "another model's");

    // Every byte counts.
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 3);
    let whole: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let second = next(&prompt(1), &made, &ids(450, 20));
    let length = whole[0].len();
    for at in (0..length).step_by(97).chain(length - 40..length) {
        for (file, whole) in files.iter().zip(&whole) {
            let mut bent = whole.clone();
            bent[at.min(whole.len() - 1)] ^= 1;
            std::fs::write(file, bent).unwrap();
        }
        let mut talks = Conversations::new(8, open(1));
        let (reuse, cached) = ask(&mut talks, &mut model, &second, None, &made);
        assert_eq!((reuse, cached), (Reuse::New, 0), "byte {at}");
        model.text = model.text.with_memory(4);
        let notes = talks.notes();
        // Those with another identity are another model's.
        assert!(
            (8..40).contains(&at) || notes.iter().any(|note| note.contains("left out")),
            "{at}: {notes:?}"
        );
    }
    for (file, whole) in files.iter().zip(&whole) {
        std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
    }
    assert_eq!(ask(&mut Conversations::new(8, open(1)), &mut model, &second, None, &made), (Reuse::New, 0));

    // Bounded, the oldest gone first.
    for file in &files {
        std::fs::remove_file(file).unwrap();
    }
    let limit = 3 * length as u64;
    let small = Snapshots::open(dir.path(), limit, [1; 32]).unwrap();
    let (mut model, mut talks) = (self::model(600), Conversations::new(8, Some(small)));
    for number in 0..8 {
        ask(&mut talks, &mut model, &prompt(number), None, &made);
        let bytes: u64 =
            std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(bytes, talks.kept().disk_bytes);
        assert!(bytes <= limit);
    }
    assert!(talks.kept().on_disk >= 2);
    let second = next(&prompt(6), &made, &ids(450, 20));
    assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Restored, 392));
}

#[test]
fn a_file_that_memory_has_no_room_for_is_passed_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = || Some(Snapshots::open(dir.path(), 1 << 20, [1; 32]).expect("a folder"));
    let (prompt, made) = (ids(0, 400), ids(7, 40));
    let mut large = model(u64::MAX);
    let mut talks = Conversations::new(8, open());
    ask(&mut talks, &mut large, &prompt, None, &made);
    talks.save_all(&mut large);
    let second = next(&prompt, &made, &ids(450, 20));
    let (mut small, mut talks) = (model(100), Conversations::new(8, open()));
    assert_eq!(ask(&mut talks, &mut small, &second, None, &made), (Reuse::New, 0));
    assert!(talks.notes().concat().contains("larger than"), "said");
    assert_eq!(talks.kept().on_disk, 1, "still counted, and there for a larger budget");
}

#[test]
fn one_place_gives_way_to_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let files = Snapshots::open(dir.path(), 1 << 20, [1; 32]).expect("a folder");
    let (mut model, mut talks) = (model(u64::MAX), Conversations::new(1, Some(files)));
    let (prompt, made) = (ids(0, 400), ids(7, 40));
    ask(&mut talks, &mut model, &prompt, None, &made);
    ask(&mut talks, &mut model, &ids(300, 30), None, &made);
    let second = next(&prompt, &made, &ids(450, 20));
    assert_eq!(ask(&mut talks, &mut model, &second, None, &made), (Reuse::Restored, 392));
}

#[test]
fn what_is_of_no_use_counts_and_goes_in_its_turn() {
    let dir = tempfile::tempdir().expect("a folder");
    let open = |limit, identity| Snapshots::open(dir.path(), limit, [identity; 32]).expect("a folder");
    let made = ids(7, 40);
    let keep = |files, number: u32| {
        let (mut model, mut talks) = (model(u64::MAX), Conversations::new(8, Some(files)));
        ask(&mut talks, &mut model, &ids(100 * number, 400), None, &made);
        talks.save_all(&mut model);
        talks.kept()
    };
    let old = keep(open(1 << 20, 1), 0);
    let age = |file: &std::path::Path, days: u64| {
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 24 * 3600);
        std::fs::File::options().append(true).open(file).unwrap().set_modified(time).unwrap();
    };
    let files = || -> Vec<std::path::PathBuf> {
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let theirs = files().remove(0);
    age(&theirs, 3);
    // Nobody else's files are looked at, whatever they end in.
    let strange = dir.path().join("mine.conversation");
    std::fs::write(&strange, "notes").unwrap();
    age(&strange, 400);
    let both = open(1 << 20, 2);
    assert_eq!((both.kept(), both.best(&ids(0, 400))), ((0, old.disk_bytes), None));
    assert_eq!(keep(both, 1).disk_bytes, 2 * old.disk_bytes);
    assert!(theirs.exists());
    // Room for one: the older gives way, whosever it is.
    assert_eq!(keep(open(old.disk_bytes + 10, 2), 2).on_disk, 1);
    assert!(!theirs.exists());
    assert_eq!(files().len(), 2);
    // After a month nobody's waits for that.
    files().iter().for_each(|file| age(file, 31));
    assert_eq!(open(1 << 20, 2).kept().0, 1);
    assert_eq!(open(1 << 20, 3).kept(), (0, 0));
    assert_eq!(files(), [strange]);
}
