use super::*;
use fieldfare::engine::Timings;
use std::sync::mpsc as std_mpsc;

/// Longer than any test takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A model that makes the tokens of its prompt again, and waits for a word before each.
struct Echo {
    go: std_mpsc::Receiver<()>,
    started: std_mpsc::Sender<Vec<u32>>,
}

pub(crate) fn generation(prompt: usize, ids: Vec<u32>, finish: Finish) -> Generation {
    Generation {
        text: String::new(),
        reasoning: None,
        tool_calls: Vec::new(),
        call_error: None,
        truncated_tool_call: false,
        cut_call: None,
        token_ids: ids,
        scores: Vec::new(),
        prompt_scores: None,
        finish,
        seed: 0,
        prompt_tokens: prompt,
        cached_tokens: 0,
        reuse: fieldfare::engine::Reuse::default(),
        timings: Timings::default(),
    }
}

impl Model for Echo {
    fn run(&mut self, most: usize) -> Box<dyn Running + '_> {
        Box::new(EchoRuns { echo: self, most, texts: Vec::new() })
    }

    fn forget(&mut self) {}

    fn readings(&self) -> Readings {
        Readings::default()
    }
}

/// Its texts; those that can take a step take it together, one word for all.
struct EchoRuns<'a> {
    echo: &'a mut Echo,
    most: usize,
    texts: Vec<(Ask, Vec<u32>)>,
}

impl Running for EchoRuns<'_> {
    fn add(&mut self, ask: Ask, _: &mut dyn Listener) {
        let _ = self.echo.started.send(ask.prompt.clone());
        self.texts.push((ask, Vec::new()));
    }

    fn places(&self) -> usize {
        self.most - self.texts.len()
    }

    fn turn(&mut self, listener: &mut dyn Listener) -> bool {
        let mut ready = Vec::new();
        for (ask, made) in std::mem::take(&mut self.texts) {
            if ask.cancel.is_cancelled() {
                listener.ended(ask.number, Ok(generation(ask.prompt.len(), made, Finish::Cancelled)));
                continue;
            }
            if listener.ready(ask.number) {
                ready.push(self.texts.len());
            }
            self.texts.push((ask, made));
        }
        if ready.is_empty() {
            return false;
        }
        if self.echo.go.recv_timeout(Duration::from_millis(2)).is_err() {
            return true;
        }
        for at in ready.into_iter().rev() {
            let (ask, made) = &mut self.texts[at];
            let id = ask.prompt[made.len()];
            assert_ne!(id, 666, "the model panics on request");
            made.push(id);
            let going = listener.event(ask.number, Event::Token { id }).is_continue()
                && listener.event(ask.number, Event::Text("x")).is_continue();
            if !going || made.len() == ask.prompt.len() {
                let (ask, made) = self.texts.remove(at);
                let finish = if going { Finish::Stop } else { Finish::Cancelled };
                listener.ended(ask.number, Ok(generation(ask.prompt.len(), made, finish)));
            }
        }
        true
    }

    fn readings(&self) -> Readings {
        Readings::default()
    }
}

struct Rig {
    runtime: tokio::runtime::Runtime,
    door: Door,
    thread: JoinHandle<()>,
    go: std_mpsc::Sender<()>,
    started: std_mpsc::Receiver<Vec<u32>>,
    metrics: Arc<Metrics>,
}

fn rig(waiting: usize) -> Rig {
    rig_with(PATIENCE, (1, waiting))
}

fn rig_with(patience: Duration, places: (usize, usize)) -> Rig {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let metrics = Arc::new(Metrics::new(Box::new(|_| {})));
    let (go, going) = std_mpsc::channel();
    let (starting, started) = std_mpsc::channel();
    let model = Echo { go: going, started: starting };
    let handle = runtime.handle().clone();
    let (door, thread) = Door::open(patience, model, places, metrics.clone(), handle).unwrap();
    Rig { runtime, door, thread, go, started, metrics }
}

fn work_of(prompt: &[u32]) -> Work {
    Work { prompt: prompt.to_vec(), options: GenerateOptions::default(), one_call: false, thought: None }
}

impl Place {
    /// The only work of a request.
    fn alone(self, work: Work) -> Answer {
        Self::submit(&Arc::new(self), work)
    }
}

impl Rig {
    fn started(&self) -> Vec<u32> {
        self.started.recv_timeout(Duration::from_secs(60)).expect("the model is asked")
    }

    fn end(self) {
        self.door.close();
        self.door.abort();
        self.thread.join().expect("the thread ends");
    }
}

#[test]
fn the_line_is_bounded_and_served_in_order() {
    let rig = rig(2);
    let answers: Vec<Answer> =
        [1, 2, 3].map(|id| rig.door.enter().expect("a place").alone(work_of(&[id]))).into();
    assert_eq!(rig.door.enter().err().map(|error| error.code), Some("queue_full"));
    assert_eq!(rig.metrics.refused.get(), 1);
    for (wanted, mut answer) in [1, 2, 3].into_iter().zip(answers) {
        rig.go.send(()).unwrap();
        let outcome = rig.runtime.block_on(answer.outcome()).expect("an answer");
        assert_eq!(outcome.generation.token_ids, [wanted]);
        assert_eq!(rig.started(), [wanted]);
    }
    assert!(rig.door.enter().is_ok());
    assert_eq!(rig.metrics.left.get(), 0);
    rig.end();
}

#[test]
fn whoever_leaves_gives_up_his_place_and_ends_his_work() {
    let rig = rig(1);
    let running = rig.door.enter().expect("a place").alone(work_of(&[1, 1, 1]));
    rig.started();
    let waiting = rig.door.enter().expect("a place").alone(work_of(&[2]));
    assert_eq!(rig.door.load(), (1, 1));
    assert!(rig.door.enter().is_err());
    drop(waiting);
    assert_eq!(rig.door.load(), (1, 0));
    let mut last = rig.door.enter().expect("the place is free").alone(work_of(&[3]));
    drop(running);
    // The next begins without a word to the one that left.
    assert_eq!(rig.started(), [3]);
    rig.go.send(()).unwrap();
    assert_eq!(rig.runtime.block_on(last.outcome()).expect("an answer").generation.token_ids, [3]);
    assert_eq!(rig.metrics.left.get(), 2);
    rig.end();
}

#[test]
fn a_slow_reader_holds_the_model_back_and_loses_nothing() {
    let rig = rig(0);
    let many = UNREAD * 3;
    let mut answer = rig.door.enter().expect("a place").alone(work_of(&vec![7; many]));
    for _ in 0..many {
        rig.go.send(()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(rig.door.load().0, 1, "it cannot be done: nobody has read");
    let mut seen = 0;
    let end = rig.runtime.block_on(async {
        loop {
            match std::future::poll_fn(|cx| answer.poll_next(cx)).await {
                Some(Update::Text(_)) => seen += 1,
                other => return other,
            }
        }
    });
    assert!(matches!(end, Some(Update::Done(_))) && seen == many, "{seen}");
    rig.end();
}

#[test]
fn whoever_reads_nothing_is_waited_for_once() {
    let patience = Duration::from_millis(300);
    let start = Instant::now();
    let rig = rig_with(patience, (1, 1));
    let mut unread = rig.door.enter().expect("a place").alone(work_of(&vec![7; UNREAD + 40]));
    rig.started();
    let mut next = rig.door.enter().expect("a place").alone(work_of(&[5]));
    (0..UNREAD + 2).for_each(|_| rig.go.send(()).unwrap());
    assert_eq!(rig.runtime.block_on(next.outcome()).expect("an answer").generation.token_ids, [5]);
    assert!(start.elapsed() >= patience, "{:?}", start.elapsed());
    // What he had room for is all that he finds when he comes back; the rest was given up, and nobody waits for him again.
    let mut seen = 0;
    let end = rig.runtime.block_on(async {
        loop {
            match std::future::poll_fn(|cx| unread.poll_next(cx)).await {
                Some(Update::Text(_)) => seen += 1,
                other => return other,
            }
        }
    });
    assert!((UNREAD - STEP..=UNREAD).contains(&seen), "{seen}");
    let Some(Update::Done(outcome)) = end else { panic!("{end:?}") };
    assert_eq!((outcome.generation.finish, outcome.generation.token_ids.len()), (Finish::Cancelled, seen));
    rig.end();
}

#[test]
fn a_complete_answer_waits_for_its_reader_and_nobody_for_him() {
    let rig = rig(1);
    // All that is left to do is to be read: what comes next does not wait for that.
    let mut unread = rig.door.enter().expect("a place").alone(work_of(&vec![7; UNREAD - STEP + 1]));
    let many = UNREAD - STEP + 1;
    let mut next = rig.door.enter().expect("a place").alone(work_of(&[5]));
    (0..many + 1).for_each(|_| rig.go.send(()).unwrap());
    assert_eq!(rig.runtime.block_on(next.outcome()).expect("an answer").generation.token_ids, [5]);
    assert_eq!(rig.runtime.block_on(unread.outcome()).expect("an answer").generation.token_ids.len(), many);
    rig.end();
}

#[test]
fn several_are_let_in_and_a_slow_reader_stops_nobody() {
    let rig = rig_with(PATIENCE, (2, 1));
    let many = 2 * UNREAD;
    let enter = |prompt: &[u32]| rig.door.enter().expect("a place").alone(work_of(prompt));
    let mut slow = enter(&vec![7; many]);
    rig.started();
    let mut quick = enter(&vec![8; many]);
    rig.started();
    let mut third = enter(&[9]);
    assert_eq!(rig.door.load(), (2, 1));
    assert!(rig.door.enter().is_err());
    // Words for both until one is behind, then for the other alone.
    (0..many).for_each(|_| rig.go.send(()).unwrap());
    let read = |answer: &mut Answer| {
        rig.runtime.block_on(async {
            let mut seen = 0;
            loop {
                match std::future::poll_fn(|cx| answer.poll_next(cx)).await {
                    Some(Update::Text(_)) => seen += 1,
                    other => return (seen, matches!(other, Some(Update::Done(_)))),
                }
            }
        })
    };
    assert_eq!(read(&mut quick), (many, true));
    assert_eq!(rig.started(), [9], "the place of the one is the next one's");
    assert_eq!(rig.door.load(), (2, 0));
    (0..many).for_each(|_| rig.go.send(()).unwrap());
    assert_eq!(read(&mut third), (1, true));
    assert_eq!(read(&mut slow), (many, true));
    rig.end();
}

#[test]
fn a_panic_fails_one_request_and_the_next_is_answered() {
    let rig = rig(1);
    let mut broken = rig.door.enter().expect("a place").alone(work_of(&[666]));
    rig.go.send(()).unwrap();
    let error = rig.runtime.block_on(broken.outcome()).expect_err("it panicked");
    assert_eq!((error.status, error.code), (500, "internal_error"));
    let mut next = rig.door.enter().expect("a place").alone(work_of(&[5]));
    rig.go.send(()).unwrap();
    assert_eq!(rig.runtime.block_on(next.outcome()).expect("an answer").generation.token_ids, [5]);
    rig.end();
}

#[test]
fn the_end_sends_the_waiting_away_and_then_those_who_run() {
    let rig = rig(1);
    let running = rig.door.enter().expect("a place").alone(work_of(&[1]));
    rig.started();
    let waiting = rig.door.enter().expect("a place").alone(work_of(&[2]));
    rig.door.close();
    let code = |mut answer: Answer| rig.runtime.block_on(answer.outcome()).expect_err("no answer").code;
    assert_eq!(code(waiting), "shutting_down");
    assert_eq!(rig.door.enter().err().map(|error| error.code), Some("shutting_down"));
    assert_eq!(rig.door.load().0, 1, "what runs goes on");
    rig.door.abort();
    assert_eq!(code(running), "shutting_down");
    rig.end();
}

#[test]
fn thoughts_are_counted_with_their_marks() {
    let thought = |starts_inside| Thought { open: 1, close: 2, starts_inside };
    assert_eq!(thought(false).count(&[9, 1, 8, 8, 2, 9, 1, 2]), 6);
    assert_eq!(thought(true).count(&[8, 8, 2, 9]), 3);
    assert_eq!(thought(false).count(&[9, 9]), 0);
}
