//! Traces: the caller's goes into a task's headers, as the W3C writes it, and a handler runs in a
//! span beneath it. Which spans are kept, and where, is the application's.

use crate::Job;
use opentelemetry::{
    Context, KeyValue, global,
    trace::{
        FutureExt as _, SpanContext, SpanId, SpanKind, TraceContextExt as _, TraceFlags, TraceId,
        TraceState, Tracer as _,
    },
};
use std::{collections::HashMap, str::FromStr as _};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Adds the active span, if there is one, and the caller did not name another.
pub(crate) fn inject(headers: &mut HashMap<String, String>) {
    if headers.contains_key(TRACEPARENT) || headers.contains_key(TRACESTATE) {
        return;
    }
    let context = Context::current();
    let span = context.span().span_context().clone();
    if !span.is_valid() {
        return;
    }
    let flags = span.trace_flags() & TraceFlags::SAMPLED;
    let traceparent = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
    headers.insert(TRACEPARENT.to_owned(), traceparent);
    let state = span.trace_state().header();
    if !state.is_empty() {
        headers.insert(TRACESTATE.to_owned(), state);
    }
}

/// Runs a handler's work in a span `rdq.handle`, beneath the producer's.
pub(crate) fn in_span<T>(job: &Job, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let parent = extract(job.headers())
        .map_or_else(Context::new, |span| Context::new().with_remote_span_context(span));
    let tracer = global::tracer("rdq-client");
    let span = tracer
        .span_builder("rdq.handle")
        .with_kind(SpanKind::Consumer)
        .with_attributes([
            KeyValue::new("rdq.queue", job.queue().to_owned()),
            KeyValue::new("rdq.task_id", job.id().to_owned()),
            KeyValue::new("rdq.attempt", i64::from(job.attempt_no())),
        ])
        .start_with_context(&tracer, &parent);
    work.with_context(parent.with_span(span))
}

fn extract(headers: &HashMap<String, String>) -> Option<SpanContext> {
    let mut parts = headers.get(TRACEPARENT)?.trim().split('-');
    let (version, trace_id, span_id, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    // A later version may have more parts; this one has four.
    let is_ours = version == "00" && parts.next().is_none();
    let is_later = version.len() == 2 && version != "00" && version != "ff";
    if !(is_ours || is_later) || trace_id.len() != 32 || span_id.len() != 16 || flags.len() != 2 {
        return None;
    }
    let span = SpanContext::new(
        TraceId::from_hex(trace_id).ok()?,
        SpanId::from_hex(span_id).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
        true,
        headers
            .get(TRACESTATE)
            .and_then(|state| TraceState::from_str(state).ok())
            .unwrap_or_default(),
    );
    span.is_valid().then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parent: &str) -> HashMap<String, String> {
        HashMap::from([
            (TRACEPARENT.to_owned(), parent.to_owned()),
            (TRACESTATE.to_owned(), "vendor=value".to_owned()),
        ])
    }

    #[test]
    fn a_span_goes_there_and_back() {
        let span = extract(&headers(PARENT)).unwrap();
        let _active = Context::new().with_remote_span_context(span.clone()).attach();
        let mut sent = HashMap::new();
        inject(&mut sent);
        assert_eq!(sent, headers(PARENT));
        assert_eq!(extract(&sent), Some(span));
    }

    #[test]
    fn what_the_caller_set_stays_and_without_a_span_nothing_is_added() {
        let mut sent = HashMap::new();
        inject(&mut sent);
        assert!(sent.is_empty());
        let _active =
            Context::new().with_remote_span_context(extract(&headers(PARENT)).unwrap()).attach();
        let own = "00-11111111111111111111111111111111-2222222222222222-00";
        let mut sent = HashMap::from([(TRACEPARENT.to_owned(), own.to_owned())]);
        inject(&mut sent);
        assert_eq!(sent, HashMap::from([(TRACEPARENT.to_owned(), own.to_owned())]));
    }

    #[test]
    fn what_is_no_parent_is_none() {
        for parent in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-zzf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(extract(&headers(parent)), None, "{parent}");
        }
        let later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(extract(&headers(later)).is_some());
    }
}
