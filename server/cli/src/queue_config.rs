//! The configuration of a queue as people write it: nested keys, durations such as `30s`. Ranges
//! are the server's to check.

use crate::{errors::CliError, values, view};
use rdq_proto::v1::{
    ClassificationConfig, ExecutionConfig, HandlerConfig, HandlerVersionMismatch, LimitsConfig,
    QueueConfig, RetentionConfig, RetryConfig,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fs, path::Path};

/// A queue's configuration; what is unset is inherited. Its names are those of the server's file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct QueueConfigDoc {
    #[serde(skip_serializing_if = "is_default")]
    retry: Retry,
    #[serde(skip_serializing_if = "is_default")]
    classification: Classification,
    #[serde(skip_serializing_if = "is_default")]
    execution: Execution,
    #[serde(skip_serializing_if = "is_default")]
    limits: Limits,
    #[serde(skip_serializing_if = "is_default")]
    retention: Retention,
    #[serde(skip_serializing_if = "is_default")]
    handler: Handler,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retry {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_backoff: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    multiplier: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_backoff: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Classification {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retryable: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    permanent: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Execution {
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict_leases: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Limits {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_payload_bytes: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retention {
    #[serde(skip_serializing_if = "Option::is_none")]
    succeeded: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Handler {
    #[serde(skip_serializing_if = "Option::is_none")]
    version_mismatch: Option<Mismatch>,
}

/// The contract's duration, written as people write it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span(prost_types::Duration);

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&values::human(self.0))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        values::duration(&text).map(values::wire).map(Self).map_err(D::Error::custom)
    }
}

/// The contract's `HandlerVersionMismatch`; one of a newer server is kept by its number.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mismatch(i32);

impl Serialize for Mismatch {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let known = HandlerVersionMismatch::try_from(self.0).map(|value| value.as_str_name());
        to.serialize_str(&view::short(known.ok(), MISMATCH_PREFIX, self.0).to_lowercase())
    }
}

impl<'de> Deserialize<'de> for Mismatch {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let name = format!("{MISMATCH_PREFIX}{}", text.to_uppercase());
        match HandlerVersionMismatch::from_str_name(&name) {
            Some(HandlerVersionMismatch::Unspecified) | None => text
                .parse()
                .map(Self)
                .map_err(|_| D::Error::unknown_variant(&text, &["run_latest", "dead_letter"])),
            Some(value) => Ok(Self(value.into())),
        }
    }
}

const MISMATCH_PREFIX: &str = "HANDLER_VERSION_MISMATCH_";

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Reads a YAML file, of which JSON is a part.
pub(crate) fn read(path: &Path) -> Result<QueueConfigDoc, CliError> {
    let text = fs::read_to_string(path)
        .map_err(|error| CliError::Usage(format!("cannot read {}: {error}", path.display())))?;
    parse(&text).map_err(|error| CliError::Usage(format!("{}: {error}", path.display())))
}

fn parse(text: &str) -> Result<QueueConfigDoc, serde_saphyr::Error> {
    if text.trim().is_empty() {
        return Ok(QueueConfigDoc::default());
    }
    serde_saphyr::from_str(text)
}

/// Sets keys such as `retry.max_attempts`, one after the other. An empty value inherits again.
pub(crate) fn set(
    config: QueueConfigDoc,
    settings: &[(String, String)],
) -> Result<QueueConfigDoc, CliError> {
    let mut config = config;
    for (key, text) in settings {
        let wrong = |error: serde_json::Error| CliError::Usage(format!("--set {key}: {error}"));
        let mut document = serde_json::to_value(&config).map_err(wrong)?;
        let mut place = &mut document;
        for part in key.split('.') {
            place = match place {
                Value::Object(fields) => {
                    fields.entry(part).or_insert_with(|| Value::Object(Map::default()))
                }
                _ => return Err(CliError::Usage(format!("--set {key}: there is no such key"))),
            };
        }
        *place = value(key, text);
        config = serde_json::from_value(document).map_err(wrong)?;
    }
    Ok(config)
}

/// A value by its look: a list under `classification`, else a number or a truth value, else text.
fn value(key: &str, text: &str) -> Value {
    if key.starts_with("classification.") {
        let globs = text.split(',').map(str::trim).filter(|glob| !glob.is_empty());
        return Value::Array(globs.map(Value::from).collect());
    }
    if text.is_empty() {
        return Value::Null;
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// Every key, in the order of the contract.
pub(crate) fn names() -> [&'static str; 16] {
    [
        "retry.max_attempts",
        "retry.initial_backoff",
        "retry.multiplier",
        "retry.max_backoff",
        "retry.jitter",
        "classification.retryable",
        "classification.permanent",
        "execution.lease",
        "execution.timeout",
        "execution.strict_leases",
        "limits.max_payload_bytes",
        "retention.succeeded",
        "retention.cancelled",
        "retention.dead",
        "handler.version_mismatch",
        "paused",
    ]
}

/// What holds of a key that even the server's defaults leave unset.
pub(crate) fn when_unset(name: &str) -> &'static str {
    match name {
        "classification.retryable" | "classification.permanent" => "none",
        "execution.timeout" => "no bound",
        "execution.strict_leases" | "paused" => "false",
        name if name.starts_with("retention.") => "for ever",
        _ => "-",
    }
}

impl QueueConfigDoc {
    /// The keys that are set, with their values as text.
    pub(crate) fn keys(&self) -> BTreeMap<String, String> {
        let mut keys = BTreeMap::new();
        if let Ok(document) = serde_json::to_value(self) {
            flatten(String::new(), &document, &mut keys);
        }
        keys
    }

    /// What a list of queues shows: paused, attempts, lease.
    pub(crate) fn columns(&self) -> [String; 3] {
        let keys = self.keys();
        let column = |name| keys.get(name).cloned().unwrap_or_else(|| "-".into());
        [
            if self.paused == Some(true) { "yes".into() } else { "no".into() },
            column("retry.max_attempts"),
            column("execution.lease"),
        ]
    }
}

fn flatten(key: String, value: &Value, keys: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let inner = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                flatten(inner, value, keys);
            }
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            keys.insert(key, items.join(","));
        }
        Value::String(text) => {
            keys.insert(key, text.clone());
        }
        other => {
            keys.insert(key, other.to_string());
        }
    }
}

impl From<QueueConfig> for QueueConfigDoc {
    fn from(config: QueueConfig) -> Self {
        let retry = config.retry.unwrap_or_default();
        let classification = config.classification.unwrap_or_default();
        let execution = config.execution.unwrap_or_default();
        let retention = config.retention.unwrap_or_default();
        let mismatch = config.handler.unwrap_or_default().version_mismatch;
        Self {
            retry: Retry {
                max_attempts: retry.max_attempts,
                initial_backoff: retry.initial_backoff.map(Span),
                multiplier: retry.multiplier,
                max_backoff: retry.max_backoff.map(Span),
                jitter: retry.jitter,
            },
            classification: Classification {
                retryable: classification.retryable,
                permanent: classification.permanent,
            },
            execution: Execution {
                lease: execution.lease.map(Span),
                timeout: execution.timeout.map(Span),
                strict_leases: execution.strict_leases,
            },
            limits: Limits {
                max_payload_bytes: config.limits.unwrap_or_default().max_payload_bytes,
            },
            retention: Retention {
                succeeded: retention.succeeded.map(Span),
                cancelled: retention.cancelled.map(Span),
                dead: retention.dead.map(Span),
            },
            handler: Handler { version_mismatch: (mismatch != 0).then_some(Mismatch(mismatch)) },
            paused: config.paused,
        }
    }
}

impl From<QueueConfigDoc> for QueueConfig {
    fn from(doc: QueueConfigDoc) -> Self {
        let wire = |span: Option<Span>| span.map(|span| span.0);
        Self {
            retry: Some(RetryConfig {
                max_attempts: doc.retry.max_attempts,
                initial_backoff: wire(doc.retry.initial_backoff),
                multiplier: doc.retry.multiplier,
                max_backoff: wire(doc.retry.max_backoff),
                jitter: doc.retry.jitter,
            }),
            classification: Some(ClassificationConfig {
                retryable: doc.classification.retryable,
                permanent: doc.classification.permanent,
            }),
            execution: Some(ExecutionConfig {
                lease: wire(doc.execution.lease),
                timeout: wire(doc.execution.timeout),
                strict_leases: doc.execution.strict_leases,
            }),
            limits: Some(LimitsConfig { max_payload_bytes: doc.limits.max_payload_bytes }),
            retention: Some(RetentionConfig {
                succeeded: wire(doc.retention.succeeded),
                cancelled: wire(doc.retention.cancelled),
                dead: wire(doc.retention.dead),
            }),
            handler: Some(HandlerConfig {
                version_mismatch: doc.handler.version_mismatch.map_or(0, |mismatch| mismatch.0),
            }),
            paused: doc.paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(settings: &[(&str, &str)]) -> Vec<(String, String)> {
        settings.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn every_key_can_be_set_is_shown_and_survives_the_wire() {
        let all = settings(&[
            ("retry.max_attempts", "3"),
            ("retry.initial_backoff", "2s"),
            ("retry.multiplier", "1.5"),
            ("retry.max_backoff", "1h"),
            ("retry.jitter", "0"),
            ("classification.retryable", "a*, b"),
            ("classification.permanent", "*"),
            ("execution.lease", "5m"),
            ("execution.timeout", "10m"),
            ("execution.strict_leases", "true"),
            ("limits.max_payload_bytes", "1000"),
            ("retention.succeeded", "0s"),
            ("retention.cancelled", "1d"),
            ("retention.dead", "30d"),
            ("handler.version_mismatch", "dead_letter"),
            ("paused", "false"),
        ]);
        let doc = set(QueueConfigDoc::default(), &all).unwrap();
        let wire = QueueConfig::from(doc.clone());
        assert_eq!(QueueConfigDoc::from(wire), doc);
        let keys = doc.keys();
        assert_eq!(keys.keys().collect::<Vec<_>>(), {
            let mut names = names().to_vec();
            names.sort_unstable();
            names
        });
        assert_eq!(keys["classification.retryable"], "a*,b");
        assert_eq!(keys["execution.lease"], "5m");
    }

    #[test]
    fn setting_keeps_the_other_keys_and_an_empty_value_inherits_again() {
        let doc = parse("retry: { max_attempts: 3, jitter: 0.1 }\npaused: true").unwrap();
        let doc = set(doc, &settings(&[("retry.jitter", ""), ("execution.lease", "1m")])).unwrap();
        assert_eq!(
            doc,
            parse("{retry: {max_attempts: 3}, execution: {lease: 1m}, paused: true}").unwrap()
        );
    }

    #[test]
    fn a_wrong_key_or_value_is_named() {
        for (key, value, named) in [
            ("retry.max_attemps", "3", "max_attemps"),
            ("nonsense", "3", "nonsense"),
            ("paused.now", "true", "paused.now"),
            ("execution.lease", "soon", "execution.lease"),
            ("execution.lease", "60", "execution.lease"),
            ("handler.version_mismatch", "explode", "explode"),
        ] {
            let result = set(parse("paused: true").unwrap(), &settings(&[(key, value)]));
            let Err(CliError::Usage(message)) = result else { panic!("{key}: {result:?}") };
            assert!(message.contains(named), "{message}");
        }
        assert!(parse("retri: {}").unwrap_err().to_string().contains("retri"));
    }

    #[test]
    fn what_json_output_shows_can_be_put_back() {
        let doc = parse("retry: { max_attempts: 3 }").unwrap();
        let json = serde_json::to_string(&doc).unwrap();
        assert_eq!(json, r#"{"retry":{"max_attempts":3}}"#);
        assert_eq!(parse(&json).unwrap(), doc);
        assert_eq!(parse("").unwrap(), QueueConfigDoc::default());
    }
}
