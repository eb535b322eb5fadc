//! How the answers of a commit are stored with its mutation: the one form for every backend whose
//! plugin has them before the record is there, which keeps it as opaque bytes. A stored form is read
//! for ever: what changes gets another version.

use crate::Applied;
use serde::{Deserialize, Serialize};

const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    answers: &'a [Applied],
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Deserialize)]
struct Stored {
    answers: Vec<Applied>,
}

/// The stored answers are not what this version writes or reads.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableAnswers {
    /// A newer version wrote them.
    #[error("the stored answers have version {found}, and this rdq reads {VERSION}")]
    Version {
        /// Which.
        found: u32,
    },
    /// They are damaged.
    #[error("the stored answers cannot be read")]
    Malformed(#[source] serde_json::Error),
}

/// Writes the answers of a commit, that to its observation left out.
#[allow(clippy::expect_used, reason = "numbers, booleans and names in a list always have a form")]
pub fn encode(answers: &[Applied]) -> Vec<u8> {
    serde_json::to_vec(&Written { version: VERSION, answers }).expect("answers can be written")
}

/// Reads them.
pub fn decode(bytes: &[u8]) -> Result<Vec<Applied>, UnreadableAnswers> {
    let Head { version } = serde_json::from_slice(bytes).map_err(UnreadableAnswers::Malformed)?;
    if version != VERSION {
        return Err(UnreadableAnswers::Version { found: version });
    }
    let stored: Stored = serde_json::from_slice(bytes).map_err(UnreadableAnswers::Malformed)?;
    Ok(stored.answers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::{Admission, Cancelled, Resolved, TaskStatus, Timestamp};

    #[test]
    fn the_form_of_version_1_stays_as_it_is() {
        let resolved = |next_attempt_at| Resolved {
            status: TaskStatus::Pending,
            next_attempt_at,
            replayed: false,
        };
        let answers = [
            Applied::Enqueued(Admission { created: true, status: TaskStatus::InFlight }),
            Applied::Published(i64::MAX),
            Applied::Notified,
            Applied::OffsetSaved(-1),
            Applied::Recorded(2),
            Applied::Cancelled(Cancelled { status: TaskStatus::Cancelled, changed: true }),
            Applied::Resolved(resolved(Some(Timestamp::from_millis(1_000)))),
            Applied::Resolved(resolved(None)),
        ];
        let stored = concat!(
            r#"{"version":1,"answers":[{"enqueued":{"created":true,"status":"in_flight"}},"#,
            r#"{"published":9223372036854775807},"notified",{"offset_saved":-1},{"recorded":2},"#,
            r#"{"cancelled":{"status":"cancelled","changed":true}},"#,
            r#"{"resolved":{"status":"pending","next_attempt_at":1000,"replayed":false}},"#,
            r#"{"resolved":{"status":"pending","next_attempt_at":null,"replayed":false}}]}"#,
        );
        assert_eq!(String::from_utf8(encode(&answers)).unwrap(), stored);
        assert_eq!(decode(stored.as_bytes()).unwrap(), answers);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
    }

    #[test]
    fn what_is_newer_or_damaged_is_told_apart() {
        let newer = decode(br#"{"version":2,"replies":7}"#);
        assert!(matches!(newer, Err(UnreadableAnswers::Version { found: 2 })), "{newer:?}");
        for damaged in
            [&b""[..], b"\0", b"{}", br#"{"version":1}"#, br#"{"version":1,"answers":["x"]}"#]
        {
            let answer = decode(damaged);
            assert!(matches!(answer, Err(UnreadableAnswers::Malformed(_))), "{answer:?}");
        }
    }
}
