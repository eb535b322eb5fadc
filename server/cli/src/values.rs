//! Values as people type and read them: durations, instants, tokens, payloads. It knows no command.

use crate::errors::CliError;
use base64::{Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE};
use bytes::Bytes;
use prost_types::{DurationError, Timestamp};
use std::{
    fs,
    io::{self, Read as _},
    path::PathBuf,
    time::Duration,
};

/// Reads a duration, for instance `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; for instance 30s or 1h 5m"))
}

/// Writes a duration of the contract, to the millisecond.
pub(crate) fn human(duration: prost_types::Duration) -> String {
    match Duration::try_from(duration) {
        Ok(positive) => human_std(positive),
        Err(DurationError::NegativeDuration(span)) => format!("-{}", human_std(span)),
        Err(error) => error.to_string(),
    }
}

fn human_std(duration: Duration) -> String {
    let millis = Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
    humantime::format_duration(millis).to_string()
}

/// A duration for the wire.
pub(crate) fn wire(duration: Duration) -> prost_types::Duration {
    prost_types::Duration::try_from(duration).unwrap_or(prost_types::Duration {
        // Longer than the contract's type holds: its longest, which the server judges.
        seconds: 315_576_000_000,
        nanos: 0,
    })
}

/// Reads an instant in RFC 3339, for instance `2026-01-31T12:00:00Z`.
pub(crate) fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "not an instant such as 2026-01-31T12:00:00Z".to_owned())
}

/// A claim token as commands print it.
pub(crate) fn token_text(token: &[u8]) -> String {
    STANDARD.encode(token)
}

/// Reads a claim token as `rdq claim` or another program printed it.
pub(crate) fn token(text: &str) -> Result<Bytes, String> {
    match STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)) {
        Ok(token) if !token.is_empty() => Ok(token.into()),
        _ => Err("not a claim token as `rdq claim` prints it (base64)".into()),
    }
}

/// Opaque bytes for a program: exactly one of the two is set, or none if there are no bytes.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match str::from_utf8(bytes) {
        Ok("") => (None, None),
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// Reads `KEY=VALUE`.
pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not of the form KEY=VALUE".into()),
    }
}

/// Where bytes come from: the argument itself, `@FILE`, or `-` for standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The argument itself.
    Text(String),
    /// A file.
    File(PathBuf),
    /// Standard input.
    Stdin,
}

/// Reads an argument that names bytes.
#[expect(clippy::unnecessary_wraps, reason = "clap's signature of a parser")]
pub(crate) fn source(text: &str) -> Result<Source, String> {
    Ok(match (text, text.strip_prefix('@')) {
        ("-", _) => Source::Stdin,
        (_, Some(path)) => Source::File(path.into()),
        (text, None) => Source::Text(text.to_owned()),
    })
}

impl Source {
    /// The bytes.
    pub(crate) fn read(&self) -> Result<Bytes, CliError> {
        match self {
            Self::Text(text) => Ok(text.clone().into()),
            Self::File(path) => fs::read(path).map(Bytes::from).map_err(|error| {
                CliError::Usage(format!("cannot read {}: {error}", path.display()))
            }),
            Self::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }

    /// The bytes as text, for what the contract keeps as text.
    pub(crate) fn read_text(&self) -> Result<String, CliError> {
        String::from_utf8(self.read()?.into())
            .map_err(|_| CliError::Usage("the text is not UTF-8".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_people_write_them() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert!(duration("soon").is_err());
        assert_eq!(human(wire(Duration::from_micros(90_000_900))), "1m 30s");
        assert_eq!(human(prost_types::Duration { seconds: -5, nanos: 0 }), "-5s");
        assert_eq!(wire(Duration::MAX).seconds, 315_576_000_000);
    }

    #[test]
    fn instants_of_every_year_of_the_contract_are_read_and_written() {
        for text in ["0001-01-01T00:00:00Z", "1969-07-20T20:17:40.500Z", "9999-12-31T23:59:59Z"] {
            assert_eq!(instant(text).map(|instant| instant.to_string()), Ok(text.to_owned()));
        }
        assert!(instant("yesterday").is_err());
    }

    #[test]
    fn tokens_survive_the_shell_in_both_alphabets() {
        let bytes = [0xfb, 0xff, 0x00];
        assert_eq!(token(&token_text(&bytes)), Ok(Bytes::copy_from_slice(&bytes)));
        assert_eq!(token("-_8A"), Ok(Bytes::copy_from_slice(&bytes)));
        assert!(token("").is_err());
        assert!(token("no token").is_err());
    }

    #[test]
    fn bytes_are_text_if_they_can_be() {
        assert_eq!(text_or_base64("ä".as_bytes()), (Some("ä".into()), None));
        assert_eq!(text_or_base64(&[0xff]), (None, Some("/w==".into())));
        assert_eq!(text_or_base64(&[]), (None, None));
    }

    #[test]
    fn a_source_is_text_a_file_or_standard_input() {
        assert_eq!(source("-"), Ok(Source::Stdin));
        assert_eq!(source("@a/b"), Ok(Source::File("a/b".into())));
        assert_eq!(source("a@b"), Ok(Source::Text("a@b".into())));
        let missing = Source::File("/nowhere/at/all".into()).read();
        assert!(matches!(missing, Err(CliError::Usage(_))), "{missing:?}");
    }
}
