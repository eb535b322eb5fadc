//! The envelope in two: what belongs to the server, typed, and what the client sent, as it came. So
//! a field that this version does not know survives, at every level. It interprets no value.

use crate::{
    raw::{self, Malformed, put_field},
    v1,
};
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use std::ops::RangeInclusive;

/// The numbers of the fields of `Task` that belong to the server. All others, known or not, are
/// what the client sent.
pub const TASK_SERVER_OWNED: RangeInclusive<u32> = 14..=29;
/// The numbers of the fields of `Attempt` that this version knows.
pub const ATTEMPT_KNOWN: RangeInclusive<u32> = 1..=7;
/// The numbers of the fields of `AttemptError` that this version knows.
pub const ATTEMPT_ERROR_KNOWN: RangeInclusive<u32> = 1..=4;

const TASK_ATTEMPTS: u32 = 29;
const ATTEMPT_ERROR: u32 = 5;

/// What the client sent of an encoded `Task`, and its encoded attempts. The other fields of the
/// server are in the decoded [`v1::Task`].
pub fn split_task(task: &Bytes) -> Result<(Bytes, Vec<Bytes>), Malformed> {
    let (kept, owned) = raw::split(task, |number| !TASK_SERVER_OWNED.contains(&number))?;
    let attempts = owned.into_iter().filter(|field| field.number == TASK_ATTEMPTS);
    let attempts = attempts.map(|field| field.value.ok_or(Malformed)).collect::<Result<_, _>>()?;
    Ok((kept, attempts))
}

/// An encoded `Task` from what the client sent and what the server knows. Of `owned`, only the
/// fields of [`TASK_SERVER_OWNED`] may be set.
pub fn join_task(envelope: &[u8], owned: &v1::Task) -> Bytes {
    let mut task = BytesMut::with_capacity(envelope.len() + owned.encoded_len());
    task.extend_from_slice(envelope);
    put_message(&mut task, owned);
    task.freeze()
}

/// The known fields of an encoded `Attempt` (without `error`), those of its `error` if it is set,
/// and the rest: an encoded `Attempt` of unknown fields alone, those of the error inside it.
pub fn split_attempt(
    attempt: &Bytes,
) -> Result<(v1::Attempt, Option<v1::AttemptError>, Bytes), Malformed> {
    let (unknown, known) = raw::split(attempt, |number| !ATTEMPT_KNOWN.contains(&number))?;
    let mut fields = BytesMut::new();
    let mut error: Option<Bytes> = None;
    for field in known {
        if field.number == ATTEMPT_ERROR {
            // A message that comes in parts is the merge of them: their concatenation.
            let part = field.value.ok_or(Malformed)?;
            error = Some(
                error.map_or_else(|| part.clone(), |first| [first, part.clone()].concat().into()),
            );
        } else {
            fields.extend_from_slice(&field.raw);
        }
    }
    let attempt = v1::Attempt::decode(fields.freeze()).map_err(|_| Malformed)?;
    let Some(error) = error else { return Ok((attempt, None, unknown)) };

    let (error_unknown, known) =
        raw::split(&error, |number| !ATTEMPT_ERROR_KNOWN.contains(&number))?;
    let known: Vec<_> = known.into_iter().map(|field| field.raw).collect();
    let error = v1::AttemptError::decode(Bytes::from(known.concat())).map_err(|_| Malformed)?;
    if error_unknown.is_empty() {
        return Ok((attempt, Some(error), unknown));
    }
    let mut extra = BytesMut::from(&unknown[..]);
    put_field(&mut extra, ATTEMPT_ERROR, &error_unknown);
    Ok((attempt, Some(error), extra.freeze()))
}

/// An encoded `Attempt` from the parts that [`split_attempt`] makes.
pub fn join_attempt(
    known: &v1::Attempt,
    error: Option<&v1::AttemptError>,
    extra: &Bytes,
) -> Result<Bytes, Malformed> {
    let (unknown, parts) = raw::split(extra, |number| number != ATTEMPT_ERROR)?;
    let mut attempt = BytesMut::with_capacity(known.encoded_len() + extra.len());
    put_message(&mut attempt, &v1::Attempt { error: Bytes::new(), ..known.clone() });
    if error.is_some() || !parts.is_empty() {
        // One message, not two to merge: easier on those who read without merging.
        let mut whole = BytesMut::new();
        if let Some(error) = error {
            put_message(&mut whole, error);
        }
        for part in parts {
            whole.extend_from_slice(&part.value.ok_or(Malformed)?);
        }
        put_field(&mut attempt, ATTEMPT_ERROR, &whole);
    }
    attempt.extend_from_slice(&unknown);
    Ok(attempt.freeze())
}

fn put_message(to: &mut BytesMut, message: &impl prost::Message) {
    to.reserve(message.encoded_len());
    // `BytesMut` grows, so encoding into it cannot fail for want of room.
    message.encode(to).expect("a growing buffer has room");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const UNKNOWN: &[u8] = &[0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 7]; // field 536870911

    fn with_unknown(message: &impl prost::Message) -> Bytes {
        [&message.encode_to_vec()[..], UNKNOWN].concat().into()
    }

    #[test]
    fn a_task_is_what_the_client_sent_and_what_the_server_owns() {
        let attempt = with_unknown(&v1::Attempt { attempt_no: 1, ..Default::default() });
        let owned = v1::Task {
            status: v1::TaskStatus::Dead.into(),
            attempt_count: 1,
            attempts: vec![attempt.clone(), attempt.clone()],
            ..Default::default()
        };
        let sent = with_unknown(&v1::Task { id: "a".into(), priority: -1, ..Default::default() });
        let task = join_task(&sent, &owned);

        let (kept, attempts) = split_task(&task).unwrap();

        assert_eq!(kept, sent);
        assert_eq!(attempts, [attempt.clone(), attempt]);
        assert_eq!(v1::Task::decode(task).unwrap().attempt_count, 1);
    }

    #[test]
    fn an_attempt_keeps_unknown_fields_at_both_levels() {
        let error = v1::AttemptError { message: "m".into(), ..Default::default() };
        let known = v1::Attempt { attempt_no: 7, worker_id: "w".into(), ..Default::default() };
        let whole = v1::Attempt { error: with_unknown(&error), ..known.clone() };
        let whole = with_unknown(&whole);

        let (attempt, found, extra) = split_attempt(&whole).unwrap();
        assert_eq!((&attempt, found.as_ref()), (&known, Some(&error)));
        let again = join_attempt(&attempt, found.as_ref(), &extra).unwrap();

        assert_eq!(split_attempt(&again).unwrap(), (attempt, found, extra));
        let inner = v1::Attempt::decode(again).unwrap().error;
        assert_eq!(inner, with_unknown(&error));
    }

    #[test]
    fn an_error_in_parts_is_merged_and_an_empty_one_is_kept() {
        let part = |error: &v1::AttemptError| v1::Attempt {
            error: error.encode_to_vec().into(),
            ..Default::default()
        };
        let first = part(&v1::AttemptError { r#type: "t".into(), ..Default::default() });
        let second = part(&v1::AttemptError { message: "m".into(), ..Default::default() });
        let parts = Bytes::from([first.encode_to_vec(), second.encode_to_vec()].concat());
        let (_, error, extra) = split_attempt(&parts).unwrap();
        let error = error.unwrap();
        assert_eq!((&*error.r#type, &*error.message, extra.len()), ("t", "m", 0));

        let empty = Bytes::from_static(&[0x2a, 0]);
        let (known, error, extra) = split_attempt(&empty).unwrap();
        assert_eq!(error, Some(v1::AttemptError::default()));
        assert_eq!(join_attempt(&known, error.as_ref(), &extra).unwrap(), empty);
    }

    #[test]
    fn fields_of_another_kind_are_malformed() {
        let varint = |number: u8| Bytes::from(vec![number << 3, 1]);
        assert_eq!(split_attempt(&varint(5)), Err(Malformed));
        assert_eq!(split_attempt(&varint(6)), Err(Malformed));
        assert_eq!(split_task(&Bytes::from_static(&[0xe8, 0x01, 1])), Err(Malformed));
    }
}
