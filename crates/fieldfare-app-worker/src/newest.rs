//! A thread for questions of which only the newest is worth an answer: a slider that moves, a text that is written.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// What is to be done next.
struct Slot<T> {
    next: Option<T>,
    open: bool,
}

/// The way to such a thread; it ends when this is dropped.
pub(crate) struct Newest<T> {
    shared: Arc<(Mutex<Slot<T>>, Condvar)>,
}

impl<T: Send + 'static> Newest<T> {
    /// Starts it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(name: &str, mut answer: impl FnMut(T) + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::new(Slot { next: None, open: true }), Condvar::new()));
        let theirs: Arc<(Mutex<Slot<T>>, Condvar)> = shared.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let question = {
                    let mut slot = theirs.0.lock().unwrap_or_else(PoisonError::into_inner);
                    loop {
                        if let Some(question) = slot.next.take() {
                            break question;
                        }
                        if !slot.open {
                            return;
                        }
                        slot = theirs.1.wait(slot).unwrap_or_else(PoisonError::into_inner);
                    }
                };
                answer(question);
            }
        })?;
        Ok(Self { shared })
    }

    /// Asks; a question that waits is forgotten.
    pub(crate) fn ask(&self, question: T) {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).next = Some(question);
        self.shared.1.notify_one();
    }
}

impl<T> Drop for Newest<T> {
    fn drop(&mut self) {
        let mut slot = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.open = false;
        slot.next = None;
        drop(slot);
        self.shared.1.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_waits_gives_way_to_what_is_newer() {
        let (begun, began) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let newest = Newest::start("test", move |question: u32| {
            begun.send(question).unwrap();
            let _ = gone.recv();
        })
        .unwrap();
        newest.ask(1);
        assert_eq!(began.recv().unwrap(), 1);
        (2..=9).for_each(|question| newest.ask(question));
        go.send(()).unwrap();
        assert_eq!(began.recv().unwrap(), 9);
        drop(newest);
        drop(go);
        assert!(began.recv().is_err(), "the thread has ended");
    }
}
