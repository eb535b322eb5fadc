//! Tellers who move amounts between accounts and note each move in a journal, in one commit, on two
//! handles, as two servers would have them; and the audit of what they saw. Some do not wait for the
//! answer. What happens to the storage meanwhile is the test's own.

use crate::{
    Random,
    given::{
        change, event, get_record, is_conflict, key, read_all, records, set, some_key, some_stream,
        texts, transactions,
    },
    hands::{End, Hands},
};
use rdq_spi::{Operation, RecordName, Result, Storage, StorageError, StreamName};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

const ACCOUNTS: usize = 4;
/// What is in each account at first.
const START: i64 = 1000;
const TELLERS_PER_HANDLE: u64 = 3;
/// Longer than any call is waited for, where its teller waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// What tellers were told.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    /// Transfers that happened.
    pub acknowledged: usize,
    /// Transfers that may have happened: so the storage said.
    pub unknown: usize,
    /// Transfers whose tellers did not wait.
    pub unheard: usize,
    /// Transfers that did not happen, since somebody else's did.
    pub refused: usize,
    /// Transfers that did not happen, since the storage was away.
    pub unavailable: usize,
}

/// What a teller was told of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Acknowledged,
    Unknown,
    Unheard,
    Refused,
    Unavailable,
}

/// A transfer, as it stands in the journal: who made it, from, to, amount. None is tried twice.
type Entry = String;

#[derive(Debug, Clone)]
struct Books {
    accounts: [RecordName; ACCOUNTS],
    journal: StreamName,
    answers: Arc<Mutex<HashMap<Entry, Answer>>>,
}

/// Tellers under way.
#[derive(Debug)]
pub struct Tellers {
    books: Books,
    hands: Hands,
}

impl Tellers {
    /// Opens the accounts and starts them, on handles that it opens.
    pub async fn start(open: impl AsyncFn() -> Arc<dyn Storage>) -> Self {
        let books = Books {
            accounts: [(); ACCOUNTS].map(|()| some_key()),
            journal: some_stream(),
            answers: Arc::default(),
        };
        let stores = [open().await, open().await];
        for account in &books.accounts {
            change(&*stores[0], set(account, 0, START.to_string())).await.expect("an account");
        }
        let mut hands = Hands::default();
        let seed = Random::any_seed();
        eprintln!("seed {seed}");
        for (store, handle) in stores.into_iter().zip(0_u64..) {
            for teller in 0..TELLERS_PER_HANDLE {
                let number = handle * TELLERS_PER_HANDLE + teller;
                let random = Random::seeded(seed ^ number);
                let teller = Teller { store: store.clone(), books: books.clone(), number, random };
                hands.put_to_work(teller.work(hands.end()));
            }
        }
        Self { books, hands }
    }

    /// Returns when more was acknowledged.
    pub async fn works_on(&self) {
        let enough = self.books.tally().acknowledged + 20;
        self.hands.work_until(|| self.books.tally().acknowledged >= enough).await;
    }

    /// Lets them end, and audits on this handle.
    pub async fn finish(self, store: Arc<dyn Storage>) -> Tally {
        self.works_on().await;
        self.hands.finish().await;
        let tally = self.books.tally();
        eprintln!("{tally:?}");
        self.books.close(&*store).await;
        self.books.audit(&*store).await;
        tally
    }
}

impl Books {
    fn note(&self, entry: Entry, answer: Answer) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(answers.insert(entry, answer), None, "no entry is tried twice");
    }

    fn tally(&self) -> Tally {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |answer| answers.values().filter(|it| **it == answer).count();
        Tally {
            acknowledged: count(Answer::Acknowledged),
            unknown: count(Answer::Unknown),
            unheard: count(Answer::Unheard),
            refused: count(Answer::Refused),
            unavailable: count(Answer::Unavailable),
        }
    }

    /// Calls that nobody waited for may still be under way. Once each account has another revision,
    /// none of them can happen any more.
    async fn close(&self, store: &dyn Storage) {
        for account in &self.accounts {
            loop {
                let now = get_record(store, account).await.expect("an account");
                match change(store, set(account, now.revision, now.value)).await {
                    Ok(_) => break,
                    answer => assert!(is_conflict(&answer), "{answer:?}"),
                }
            }
        }
    }

    async fn audit(&self, store: &dyn Storage) {
        let entries = texts(&read_all(store, &self.journal).await);
        let mut expected = [START; ACCOUNTS];
        for entry in &entries {
            let (from, to, amount) = parts(entry);
            expected[from] -= amount;
            expected[to] += amount;
        }
        let mut balances = [0; ACCOUNTS];
        for (balance, account) in balances.iter_mut().zip(&self.accounts) {
            *balance = amount_of(&get_record(store, account).await.expect("an account").value);
        }
        let sum = START * i64::try_from(ACCOUNTS).expect("few");
        assert_eq!(balances.iter().sum::<i64>(), sum, "nothing is made and nothing is lost");
        assert_eq!(balances, expected, "the journal tells of all that happened: {entries:?}");
        let distinct: HashSet<_> = entries.iter().collect();
        assert_eq!(distinct.len(), entries.len(), "each once");
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        for (entry, answer) in answers.iter() {
            match answer {
                Answer::Acknowledged => assert!(distinct.contains(entry), "{entry} is lost"),
                Answer::Refused | Answer::Unavailable => {
                    assert!(!distinct.contains(entry), "{entry} was not to happen: {answer:?}");
                }
                Answer::Unknown | Answer::Unheard => {}
            }
        }
        let unheard = entries.iter().find(|entry| !answers.contains_key(*entry));
        assert_eq!(unheard, None, "nobody sent it");
    }
}

struct Teller {
    store: Arc<dyn Storage>,
    books: Books,
    number: u64,
    random: Random,
}

impl Teller {
    async fn work(mut self, end: End) {
        for transfer in 0.. {
            if end.has_come() {
                return;
            }
            let from = self.random.below(ACCOUNTS);
            let to = (from + 1 + self.random.below(ACCOUNTS - 1)) % ACCOUNTS;
            let amount = 1 + self.random.below(50);
            let entry = format!("{}/{transfer} {from} {to} {amount}", self.number);
            let patience = if self.random.percent(20) {
                Duration::from_micros(self.random.below(3000) as u64)
            } else {
                FOR_EVER
            };
            let answer = match tokio::time::timeout(patience, self.transfer(&entry)).await {
                Ok(Ok(())) => Answer::Acknowledged,
                Err(_) => Answer::Unheard,
                Ok(Err(StorageError::OutcomeUnknown { .. })) => Answer::Unknown,
                Ok(Err(StorageError::CasConflict { .. } | StorageError::Contention { .. })) => {
                    Answer::Refused
                }
                Ok(Err(StorageError::Unavailable { .. })) => Answer::Unavailable,
                Ok(Err(error)) => panic!("{error:?}"),
            };
            self.books.note(entry, answer);
            // Somebody else's turn; who was refused waits a little longer, and not as long as others.
            let pause = if answer == Answer::Acknowledged { 1 } else { 1 + self.random.below(10) };
            tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        }
    }

    async fn transfer(&self, entry: &str) -> Result<()> {
        let (from, to, amount) = parts(entry);
        let mut operations = vec![Operation::Publish(event(&self.books.journal, entry.to_owned()))];
        for (index, change) in [(from, -amount), (to, amount)] {
            let name = &self.books.accounts[index];
            let account = records(&*self.store).get_record(key(name)).await?;
            let account = account.expect("no account is ever removed");
            let balance = amount_of(&account.value) + change;
            let set = set(name, account.revision, balance.to_string());
            operations.push(Operation::CompareAndSet(set));
        }
        let committed = transactions(&*self.store).commit(operations).await;
        committed.map(drop).map_err(|rejected| rejected.error)
    }
}

/// From, to, amount.
fn parts(entry: &str) -> (usize, usize, i64) {
    let words: Vec<_> = entry.split(' ').collect();
    let index = |word: &str| word.parse().expect("an index");
    (index(words[1]), index(words[2]), words[3].parse().expect("an amount"))
}

fn amount_of(value: &[u8]) -> i64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).expect("an amount")
}
