//! How a handler's attempt ends: what it returned, or its error and what the error asks for.

use bytes::Bytes;
use prost::Message as _;
use rdq_proto::{time, v1};
use std::{
    backtrace::{Backtrace, BacktraceStatus},
    error::Error as StdError,
    fmt::{self, Write as _},
    time::Duration,
};

/// The server cuts text at 64 KiB and less; what is far beyond need not be sent.
const TEXT_BYTES_MAX: usize = 70 << 10;

/// How an attempt ends.
///
/// A handler that succeeds returns anything that becomes one: `()`, bytes or text (the result), or
/// an outcome itself. One that fails returns a [`HandlerError`], or what becomes one.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The task succeeded, with this result of up to 64 KiB.
    Complete(Bytes),
    /// The attempt failed, and the queue decides by the error's type whether it runs again.
    Fail(Cause),
    /// The attempt failed and may run again, whatever the queue's classification says.
    Retryable(Cause),
    /// The attempt failed and must not run again: the task is a dead letter.
    Permanent(Cause),
    /// The attempt failed, and the task is due again after this.
    RetryAfter(Duration, Cause),
    /// No attempt is spent, and the task is due again after this.
    Snooze(Duration),
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Complete(Bytes::new())
    }
}

impl From<Snooze> for Outcome {
    fn from(Snooze(delay): Snooze) -> Self {
        Self::Snooze(delay)
    }
}

impl From<HandlerError> for Outcome {
    fn from(error: HandlerError) -> Self {
        *error.0
    }
}

/// Results: bytes as they are, text as UTF-8.
macro_rules! results {
    ($($bytes:ty),+) => {
        $(impl From<$bytes> for Outcome {
            fn from(result: $bytes) -> Self {
                Self::Complete(result.into())
            }
        })+
    };
}
results!(Bytes, Vec<u8>, String, &'static str, &'static [u8]);

impl Outcome {
    /// Why the attempt failed.
    pub fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Fail(cause)
            | Self::Retryable(cause)
            | Self::Permanent(cause)
            | Self::RetryAfter(_, cause) => Some(cause),
            Self::Complete(_) | Self::Snooze(_) => None,
        }
    }

    fn into_cause(self) -> Cause {
        match self {
            Self::Fail(cause)
            | Self::Retryable(cause)
            | Self::Permanent(cause)
            | Self::RetryAfter(_, cause) => cause,
            Self::Complete(_) | Self::Snooze(_) => Cause::default(),
        }
    }

    /// The call that ends a claim so.
    pub(crate) fn resolution(self, id: String, claim_token: Bytes) -> v1::Resolution {
        use v1::resolution::Call;
        let call = match self {
            Self::Complete(result) => Call::Complete(v1::CompleteRequest {
                id,
                claim_token,
                result,
                ..v1::CompleteRequest::default()
            }),
            Self::Fail(cause) => {
                let attempt = cause.attempt(v1::AttemptOutcome::Unspecified);
                Call::Fail(v1::FailRequest { id, claim_token, attempt })
            }
            Self::Retryable(cause) => {
                let attempt = cause.attempt(v1::AttemptOutcome::RetryableFailure);
                Call::Fail(v1::FailRequest { id, claim_token, attempt })
            }
            Self::Permanent(cause) => {
                let attempt = cause.attempt(v1::AttemptOutcome::PermanentFailure);
                Call::DeadLetter(v1::DeadLetterRequest { id, claim_token, attempt })
            }
            Self::RetryAfter(delay, cause) => Call::Reschedule(v1::RescheduleRequest {
                id,
                claim_token,
                attempt: cause.attempt(v1::AttemptOutcome::RetryableFailure),
                delay: Some(time::duration(delay)),
                next_attempt_at: None,
            }),
            Self::Snooze(delay) => Call::Release(v1::ReleaseRequest {
                id,
                claim_token,
                delay: Some(time::duration(delay)),
            }),
        };
        v1::Resolution { call: Some(call), ..v1::Resolution::default() }
    }
}

/// Why an attempt failed, as it stands in the task's history.
#[derive(Debug, Default)]
pub struct Cause {
    error_type: String,
    message: String,
    detail: String,
    stack: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Cause {
    /// A cause by its type, which a queue's classification matches, and words for people.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), message: message.into(), ..Self::default() }
    }

    /// Adds words for programs, of any format, up to 64 KiB.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// A stable name of the failure: the error's Rust type, unless the handler named another.
    pub fn error_type(&self) -> &str {
        &self.error_type
    }

    /// What happened, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error that the handler returned, if it was of this type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.source.as_deref()?.downcast_ref()
    }

    fn of<E: StdError + Send + Sync + 'static>(error: E) -> Self {
        let error_type = std::any::type_name::<E>();
        Self::described(error_type, Box::new(error))
    }

    fn described(error_type: &str, error: Box<dyn StdError + Send + Sync>) -> Self {
        let message = error.to_string();
        let mut stack = format!("{error_type}: {message}");
        let mut source = error.source();
        while let Some(cause) = source {
            let _ = write!(stack, "\ncaused by: {cause}");
            source = cause.source();
        }
        // Costs nothing unless RUST_BACKTRACE or RUST_LIB_BACKTRACE ask for it.
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            let _ = write!(stack, "\n{backtrace}");
        }
        let detail = String::new();
        Self { error_type: error_type.to_owned(), message, detail, stack, source: Some(error) }
    }

    fn attempt(self, outcome: v1::AttemptOutcome) -> Bytes {
        let error = v1::AttemptError {
            r#type: cut(self.error_type),
            message: cut(self.message),
            detail: cut(self.detail),
            stack: cut(self.stack),
        };
        let error = error.encode_to_vec().into();
        let attempt = v1::Attempt { outcome: outcome.into(), error, ..v1::Attempt::default() };
        attempt.encode_to_vec().into()
    }
}

/// Still longer than the server's own limit, so that the server marks what it cut.
fn cut(mut text: String) -> String {
    text.truncate(boundary(&text, TEXT_BYTES_MAX));
    text
}

/// A failed attempt: the error of a handler, and what is to follow.
///
/// Any `std::error::Error` becomes one by `?`: the attempt fails with the error's Rust type, and the
/// queue decides whether it runs again. [`Permanent`], [`Retryable`], [`RetryAfter`], [`Snooze`] and
/// [`Typed`] say more:
///
/// ```
/// use rdq_client::{HandlerError, Permanent};
///
/// fn amount(text: &str) -> Result<i64, HandlerError> {
///     let amount = text.parse().map_err(Permanent)?; // no second attempt helps
///     Ok(amount)
/// }
/// assert!(amount("many").is_err());
/// ```
///
/// Like `anyhow::Error` it is no `std::error::Error` itself, which is what lets `?` take all others.
pub struct HandlerError(Box<Outcome>);

impl HandlerError {
    /// A failure by its type, which a queue's classification matches, and words for people.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Cause::new(error_type, message).into()
    }

    /// A failure from an error whose type is hidden, such as `anyhow::Error` or a box. Its error
    /// type is `error`, unless [`Typed`] names another.
    pub fn boxed(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Cause::described("error", error.into()).into()
    }

    /// Why the attempt failed; none of a [`Snooze`].
    pub fn cause(&self) -> Option<&Cause> {
        self.0.cause()
    }

    /// What is to follow.
    pub fn outcome(&self) -> &Outcome {
        &self.0
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cause().map_or("snoozed", Cause::message))
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Cause::of(error).into()
    }
}

impl From<Cause> for HandlerError {
    fn from(cause: Cause) -> Self {
        Self(Box::new(Outcome::Fail(cause)))
    }
}

/// The attempt failed for good: the task is a dead letter, whatever attempts it has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permanent<E>(pub E);

/// The attempt failed and may run again, whatever the queue's classification says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retryable<E>(pub E);

/// The attempt failed, and the task is due again after this, not when the queue's backoff says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryAfter<E>(pub Duration, pub E);

/// Not now: the task is due again after this, and no attempt is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snooze(pub Duration);

/// The attempt failed with an error type that the handler names, such as `http.503`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed<E>(pub &'static str, pub E);

impl<E: Into<HandlerError>> From<Permanent<E>> for HandlerError {
    fn from(Permanent(error): Permanent<E>) -> Self {
        Self(Box::new(Outcome::Permanent(error.into().0.into_cause())))
    }
}

impl<E: Into<HandlerError>> From<Retryable<E>> for HandlerError {
    fn from(Retryable(error): Retryable<E>) -> Self {
        Self(Box::new(Outcome::Retryable(error.into().0.into_cause())))
    }
}

impl<E: Into<HandlerError>> From<RetryAfter<E>> for HandlerError {
    fn from(RetryAfter(delay, error): RetryAfter<E>) -> Self {
        Self(Box::new(Outcome::RetryAfter(delay, error.into().0.into_cause())))
    }
}

impl From<Snooze> for HandlerError {
    fn from(Snooze(delay): Snooze) -> Self {
        Self(Box::new(Outcome::Snooze(delay)))
    }
}

impl<E: Into<HandlerError>> From<Typed<E>> for HandlerError {
    fn from(Typed(error_type, error): Typed<E>) -> Self {
        let mut outcome = error.into().0;
        if let Outcome::Fail(cause)
        | Outcome::Retryable(cause)
        | Outcome::Permanent(cause)
        | Outcome::RetryAfter(_, cause) = &mut *outcome
        {
            error_type.clone_into(&mut cause.error_type);
        }
        Self(outcome)
    }
}

/// The end of the last whole character within so many bytes.
pub(crate) fn boundary(text: &str, bytes_max: usize) -> usize {
    let most = bytes_max.min(text.len());
    (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdq_proto::envelope;
    use v1::resolution::Call;

    #[derive(Debug, thiserror::Error)]
    #[error("no such mailbox")]
    struct NoMailbox(#[source] fmt::Error);

    fn resolution(error: impl Into<HandlerError>) -> Call {
        let outcome = Outcome::from(error.into());
        outcome.resolution("id".into(), Bytes::new()).call.unwrap()
    }

    fn parts(attempt: &Bytes) -> (v1::Attempt, v1::AttemptError) {
        let (attempt, error, _) = envelope::split_attempt(attempt).unwrap();
        (attempt, error.unwrap())
    }

    #[test]
    fn an_error_fails_with_its_type_its_message_and_its_causes() {
        let Call::Fail(fail) = resolution(NoMailbox(fmt::Error)) else { panic!("no failure") };
        let (attempt, error) = parts(&fail.attempt);
        assert_eq!(attempt.outcome(), v1::AttemptOutcome::Unspecified);
        assert!(error.r#type.ends_with("::NoMailbox"), "{}", error.r#type);
        assert_eq!(error.message, "no such mailbox");
        assert!(error.stack.contains("no such mailbox\ncaused by: an error"), "{}", error.stack);
    }

    #[test]
    fn a_wrapper_says_what_follows() {
        let delay = Duration::from_secs(9);
        let error = || NoMailbox(fmt::Error);
        let Call::DeadLetter(dead) = resolution(Permanent(Typed("mail.gone", error()))) else {
            panic!("no dead letter")
        };
        assert_eq!(parts(&dead.attempt).1.r#type, "mail.gone");
        let Call::Fail(fail) = resolution(Retryable(error())) else { panic!("no failure") };
        assert_eq!(parts(&fail.attempt).0.outcome(), v1::AttemptOutcome::RetryableFailure);
        let Call::Reschedule(later) = resolution(RetryAfter(delay, error())) else {
            panic!("no retry")
        };
        assert_eq!(later.delay, Some(time::duration(delay)));
        let Call::Release(release) = resolution(Snooze(delay)) else { panic!("no release") };
        assert_eq!(release.delay, Some(time::duration(delay)));
    }

    #[test]
    fn a_question_mark_takes_every_error_and_the_outermost_wrapper_decides() {
        fn handler() -> Result<(), HandlerError> {
            Err(Permanent(RetryAfter(Duration::ZERO, NoMailbox(fmt::Error))))?;
            Ok(())
        }
        let error = handler().unwrap_err();
        assert!(matches!(error.outcome(), Outcome::Permanent(_)), "{error:?}");
        assert!(error.cause().unwrap().downcast_ref::<NoMailbox>().is_some());
        assert_eq!(HandlerError::boxed("text alone").to_string(), "text alone");
    }

    #[test]
    fn results_are_bytes_or_text() {
        let result = |outcome: Outcome| match outcome {
            Outcome::Complete(result) => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(result(().into()), "");
        assert_eq!(result("ñ".into()), "ñ".as_bytes());
        assert_eq!(result(vec![0, 255].into()), &[0, 255][..]);
    }

    #[test]
    fn huge_text_is_cut_between_characters() {
        let text = cut("ñ".repeat(TEXT_BYTES_MAX));
        assert!(text.len() <= TEXT_BYTES_MAX && text.len() > 64 << 10);
    }
}
