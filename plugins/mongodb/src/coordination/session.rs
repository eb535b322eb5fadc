//! Transactions of the database: run again where they lost against another. A transaction of MongoDB
//! waits for nobody: of two that write one document, the later one fails at once.

use crate::{
    database::{Db, pause},
    errors::{Failure, Step},
};

/// How often one is run that loses against others: for about five seconds.
const RUNS_MAX: u32 = 150;
/// The longest pauses between two runs come after so many.
const PAUSES_GROW: u32 = 6;

/// What is to become of a transaction that has run.
#[derive(Debug)]
pub(crate) enum Ended<T> {
    /// It is to happen.
    Kept(T),
    /// It is not.
    Undone(T),
}

/// Runs of one transaction, until one of them has ended.
#[derive(Debug, Default)]
pub(crate) struct Runs(u32);

impl Runs {
    /// Ends a run; `None`: it lost, nothing of it happened, and it is to be run again.
    pub(crate) async fn settle<T>(&mut self, tx: Db, ended: Step<Ended<T>>) -> Step<Option<T>> {
        let settled = match ended {
            Ok(Ended::Kept(answer)) => tx.commit().await.map(|()| answer),
            Ok(Ended::Undone(answer)) => {
                tx.rollback().await;
                Ok(answer)
            }
            Err(failure) => {
                tx.rollback().await;
                // Whatever became of a command, nothing of the transaction happened.
                Err(match failure {
                    Failure::Unknown(cause) => Failure::Unavailable(cause),
                    failure => failure,
                })
            }
        };
        match settled {
            Ok(answer) => Ok(Some(answer)),
            Err(failure) => self.again(failure).await.map(|()| None),
        }
    }

    async fn again(&mut self, failure: Failure) -> Step<()> {
        self.0 += 1;
        if !failure.may_be_repeated() || self.0 == RUNS_MAX {
            return Err(failure);
        }
        pause(self.0.min(PAUSES_GROW)).await;
        Ok(())
    }
}
