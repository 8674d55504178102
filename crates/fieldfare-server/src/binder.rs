//! Grammars for answers, within the memory that was set aside for them: a request whose grammar does not fit beside those
//! of others waits until enough of these have ended, in the order in which they came.

use crate::wire::error::ApiError;
use fieldfare::Result;
use fieldfare::grammar::{Bound, Grammars, Rules};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// Bytes that are counted together.
const UNIT: u64 = 1 << 10;

/// Room for one grammar, given back when dropped.
pub(crate) struct Room(Option<OwnedSemaphorePermit>);

/// Makes grammars.
pub(crate) struct Binder {
    grammars: Grammars,
    room: Arc<Semaphore>,
    units: u32,
}

impl Binder {
    /// All that exist at once take about so many bytes.
    pub(crate) fn new(grammars: Grammars, bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).clamp(1, u32::MAX >> 3);
        Self { grammars, room: Arc::new(Semaphore::new(units as usize)), units }
    }

    /// Bytes that are counted now.
    pub(crate) fn held(&self) -> u64 {
        u64::from(self.units).saturating_sub(self.room.available_permits() as u64) * UNIT
    }

    /// Nobody who waits gets in any more.
    pub(crate) fn close(&self) {
        self.room.close();
    }

    /// Those of one grammar; the largest that are accepted take all there is.
    fn units(&self, rules: &Rules) -> u32 {
        u32::try_from(rules.bytes().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units)
    }

    /// Room for what these rules come to, if there is some now.
    ///
    /// # Errors
    /// `shutting_down`.
    pub(crate) fn try_room(&self, rules: &Rules) -> Result<Option<Room>, ApiError> {
        match self.units(rules) {
            0 => Ok(Some(Room(None))),
            units => match self.room.clone().try_acquire_many_owned(units) {
                Ok(permit) => Ok(Some(Room(Some(permit)))),
                Err(TryAcquireError::NoPermits) => Ok(None),
                Err(TryAcquireError::Closed) => Err(ApiError::shutting_down()),
            },
        }
    }

    /// Room for what these rules come to, once there is some.
    ///
    /// # Errors
    /// `shutting_down`.
    pub(crate) async fn room(&self, rules: &Rules) -> Result<Room, ApiError> {
        let permit = self.room.clone().acquire_many_owned(self.units(rules)).await;
        permit.map(|permit| Room(Some(permit))).map_err(|_| ApiError::shutting_down())
    }

    /// Compiles rules in the room that they were given, and keeps it for as long as they and answers over them are.
    ///
    /// # Errors
    /// As [`Grammars::bind`].
    pub(crate) fn bind(&self, rules: &Rules, room: Room) -> Result<Option<Bound>> {
        let bound = self.grammars.bind(rules)?;
        Ok(bound.map(|bound| match room.0 {
            Some(permit) => bound.holding(Arc::new(permit)),
            None => bound,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fieldfare::grammar::{Content, Schema};
    use fieldfare::sample::Plan;
    use fieldfare::tokenizer::Tokenizer;

    fn binder(bytes: u64) -> Binder {
        let path = fieldfare_testing::tiny_checkpoint().join("tokenizer.json");
        let tokenizer = Tokenizer::from_json(&std::fs::read(path).unwrap()).unwrap();
        Binder::new(Grammars::new(Arc::new(tokenizer)), bytes)
    }

    #[test]
    fn room_is_kept_as_long_as_an_answer_and_the_next_waits_for_it() {
        let rules = Rules { content: Content::Json(Schema::object()), ..Rules::default() };
        let binder = binder(rules.bytes() * 5 / 2);
        assert!(binder.try_room(&Rules::default()).unwrap().is_some_and(|room| room.0.is_none()));
        let mut bound: Vec<Bound> = (0..2)
            .map(|_| {
                let room = binder.try_room(&rules).unwrap().expect("there is room for two");
                binder.bind(&rules, room).unwrap().unwrap()
            })
            .collect();
        assert!(binder.held() >= 2 * rules.bytes());
        assert!(binder.try_room(&rules).unwrap().is_none(), "there is none for a third");
        let guide = bound[0].guide(&[1]).unwrap();
        bound.remove(0);
        assert!(binder.try_room(&rules).unwrap().is_none(), "its answer goes on");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut third = std::pin::pin!(binder.room(&rules));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(third.as_mut().poll(cx))).await.is_pending()
            );
            drop(guide);
            let third = third.await.expect("room");
            let mut fourth = std::pin::pin!(binder.room(&rules));
            assert!(
                std::future::poll_fn(|cx| std::task::Poll::Ready(fourth.as_mut().poll(cx)))
                    .await
                    .is_pending()
            );
            binder.close();
            assert_eq!(fourth.await.err().map(|error| error.code), Some("shutting_down"));
            drop(third);
        });
        drop(bound);
        assert_eq!(binder.held(), 0);
    }

    #[test]
    fn what_is_larger_than_all_there_is_takes_it_alone() {
        let rules = Rules { content: Content::Json(Schema::object()), ..Rules::default() };
        let binder = binder(2 * UNIT);
        let room = binder.try_room(&rules).unwrap().expect("room");
        assert_eq!(binder.held(), 2 * UNIT);
        assert!(binder.try_room(&rules).unwrap().is_none());
        drop(room);
        assert_eq!(binder.held(), 0);
    }
}
