//! What functions of the ledger take and answer, and how a mutation is stored. It decides nothing.

use super::commits;
use crate::{
    packing::{Packer, Unpacker},
    replies::Reply,
    requests::Args,
};
use bytes::Bytes;
use rdq_spi::{
    Mutation, MutationKind, MutationScope, MutationStatus, NewMutation, PruneParams, Pruned,
};

/// A stored form is read for ever: what changes gets another version.
const VERSION: u8 = 1;

/// What names a mutation among all.
pub(super) fn field(scope: &MutationScope) -> Bytes {
    let MutationScope { subject, operation, key } = scope;
    [subject.as_str(), "\0", operation.as_str(), "\0", key.as_str()].concat().into()
}

/// The two arguments of an observation: the scope, and the mutation with the kinds of its commit's
/// other operations. The function puts the time before these, and the answers behind them: it alone
/// has them when it records.
pub(super) fn observation(mutation: &NewMutation, kinds: &[u8]) -> [Bytes; 2] {
    let NewMutation { scope, kind, eligibility_claim, fingerprint, status, response } = mutation;
    let packed = Packer::default()
        .u8(VERSION)
        .name(kind.as_str())
        .block(eligibility_claim)
        .raw(fingerprint)
        .name(status.as_str())
        .block(response)
        .block(kinds);
    [field(scope), packed.done()]
}

/// A mutation, or none.
#[expect(clippy::option_option, reason = "an answer that cannot be read is not one of none")]
pub(super) fn found(scope: &MutationScope, reply: Reply) -> Option<Option<Mutation>> {
    let row = reply.bytes_or_none()?;
    if row.is_empty() {
        return Some(None);
    }
    mutation(scope.clone(), &row).map(Some)
}

fn mutation(scope: MutationScope, row: &Bytes) -> Option<Mutation> {
    let mut from = Unpacker(row);
    let observed_at = from.timestamp()?;
    if from.u8()? != VERSION {
        return None;
    }
    let first = NewMutation {
        scope,
        kind: MutationKind::stored(from.name()?),
        eligibility_claim: row.slice_ref(from.block()?),
        fingerprint: from.array()?,
        status: MutationStatus::from_stored(from.name()?)?,
        response: row.slice_ref(from.block()?),
    };
    let kinds = from.block()?;
    let answers =
        kinds.iter().map(|&kind| commits::applied(kind, &mut from)).collect::<Option<_>>()?;
    from.is_empty().then_some(Mutation { first, answers, observed_at })
}

pub(super) fn prune(params: PruneParams) -> Args {
    let PruneParams { older_than, limit } = params;
    vec![Packer::default().millis(older_than).u32(limit).done()]
}

pub(super) fn pruned(reply: &Reply, limit: u32) -> Option<Pruned> {
    let count = reply.count()?;
    Some(Pruned { count, more: count >= limit.into() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use rdq_spi::{
        Admission, Applied, Cancelled, MutationKey, OperationName, Resolved, SubjectName,
        TaskStatus, Timestamp,
    };
    use redis::Value;

    fn new_mutation() -> NewMutation {
        NewMutation {
            scope: MutationScope {
                subject: SubjectName::new("s").unwrap(),
                operation: OperationName::new("op").unwrap(),
                key: MutationKey::new("k").unwrap(),
            },
            kind: MutationKind::new("kind").unwrap(),
            eligibility_claim: "claim".into(),
            fingerprint: [7; 32],
            status: MutationStatus::Accepted,
            response: "done\0".into(),
        }
    }

    /// A row of version 1, as it was written once.
    fn stored(version: u8) -> Vec<u8> {
        let at = [&[0, 0, 0, 0, 0, 0, 3, 0xe8][..], &[version]].concat();
        let first = [
            &b"\x04kind\0\0\0\x05claim"[..],
            &[7; 32],
            b"\x08accepted\0\0\0\x05done\0",
            b"\0\0\0\x08\x01\x02\x03\x04\x05\x06\x07\x07",
        ];
        let answers = [
            &[21][..],                                         // was there, and is dead
            &[0, 0, 0, 0, 0, 0, 0, 9],                         // an offset
            &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // what is saved
            &[0, 0, 0, 0, 0, 0, 0, 2],                         // a revision
            &[14],                                             // is cancelled now
            &[0, 0, 0, 0, 0, 0, 0, 0, 7, 0xd0],                // is pending, and due then
            &[1, 2, 0, 0, 0, 0, 0, 0, 0, 0],                   // was resolved before
        ];
        [at, first.concat(), answers.concat()].concat()
    }

    fn read(row: Vec<u8>) -> Option<Mutation> {
        found(&new_mutation().scope, Reply(Value::BulkString(row)))?
    }

    #[test]
    fn the_form_of_version_1_stays_as_it_is() {
        let kinds = [1, 2, 3, 4, 5, 6, 7, 7];
        let [scope, written] = observation(&new_mutation(), &kinds);
        assert_eq!(scope, &b"s\0op\0k"[..]);
        assert!(stored(1)[8..].starts_with(&written), "{written:?}");

        let mutation = read(stored(1)).unwrap();

        let resolved = |status, next_attempt_at: Option<i64>, replayed| {
            let next_attempt_at = next_attempt_at.map(Timestamp::from_millis);
            Applied::Resolved(Resolved { status, next_attempt_at, replayed })
        };
        let answers = [
            Applied::Enqueued(Admission { created: true, status: TaskStatus::Succeeded }),
            Applied::Published(9),
            Applied::Notified,
            Applied::OffsetSaved(i64::MAX),
            Applied::Recorded(2),
            Applied::Cancelled(Cancelled { status: TaskStatus::Cancelled, changed: true }),
            resolved(TaskStatus::Pending, Some(2000), false),
            resolved(TaskStatus::Succeeded, None, true),
        ];
        assert_eq!(mutation.first, new_mutation());
        assert_eq!(mutation.answers, answers);
        assert_eq!(mutation.observed_at, Timestamp::from_millis(1000));
    }

    #[test]
    fn what_is_newer_or_damaged_is_not_read() {
        let whole = stored(1);
        assert_eq!(read(stored(2)), None);
        assert_eq!(read([&whole[..], &[0]].concat()), None);
        for len in 1..whole.len() {
            assert_eq!(read(whole[..len].to_vec()), None, "{len}");
        }
    }
}
