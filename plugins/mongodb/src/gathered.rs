//! Claims take turns: those of one handle that look at once pick the same tasks, and lose them to each
//! other. Calls that come while others have their turn are served together by the next one, which
//! looks once for all of them.

use crate::{
    claims::{CANDIDATES_MAX, claim_due},
    database::Db,
    errors::{Failure, Step},
    token::StoreId,
};
use rdq_spi::{ClaimParams, Claimed};
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};
use tokio::sync::oneshot;

/// Claims that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    waiting: Mutex<VecDeque<Waiting>>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    claims: Vec<ClaimParams>,
    answer: Answer,
}

type Answer = oneshot::Sender<Step<Vec<Claimed>>>;

impl Gathered {
    /// Serves these claims, and others that wait with them.
    pub(crate) async fn claim_due(
        &self,
        db: &Db,
        store_id: StoreId,
        claims: Vec<ClaimParams>,
    ) -> Step<Vec<Claimed>> {
        let (answer, mut answered) = oneshot::channel();
        self.waiting().push_back(Waiting { claims, answer });
        let _turn = tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_else(|_| given_up()),
            turn = self.turn.lock() => turn,
        };
        loop {
            match answered.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::error::TryRecvError::Closed) => return given_up(),
                Err(oneshot::error::TryRecvError::Empty) => self.serve(db, store_id).await,
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves those that came first, as many as one look may find tasks for.
    async fn serve(&self, db: &Db, store_id: StoreId) {
        let (claims, callers) = self.next();
        match claim_due(db, store_id, &claims).await {
            Ok(claimed) => {
                let mut claimed = claimed.into_iter();
                for (count, answer) in callers {
                    // Nobody is there to hear it if the call was given up meanwhile.
                    drop(answer.send(Ok(claimed.by_ref().take(count).collect())));
                }
            }
            Err(failure) => {
                for (_, answer) in callers {
                    drop(answer.send(Err(failure.again())));
                }
            }
        }
    }

    /// Takes them out: all their claims in order, and of how many each caller waits for an answer.
    fn next(&self) -> (Vec<ClaimParams>, Vec<(usize, Answer)>) {
        let (mut claims, mut callers) = (Vec::new(), Vec::new());
        let mut tasks = 0;
        let mut waiting = self.waiting();
        while let Some(first) = waiting.front() {
            let wanted: usize = first.claims.iter().map(|claim| claim.limit as usize).sum();
            if !callers.is_empty() && tasks + wanted > CANDIDATES_MAX {
                break;
            }
            let Some(first) = waiting.pop_front() else { break };
            if !first.answer.is_closed() {
                tasks += wanted;
                callers.push((first.claims.len(), first.answer));
                claims.extend(first.claims);
            }
        }
        (claims, callers)
    }
}

/// Whoever served the call was ended meanwhile.
fn given_up() -> Step<Vec<Claimed>> {
    Err(Failure::Unknown("the claim's turn was given up".into()))
}
