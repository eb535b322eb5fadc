//! What workers say of their attempts, made fit to store: text is cut, never refused, so that a
//! call does not fail because of its diagnostics. Pure.

use rdq_spi::{AttemptError, AttemptReport};

const MARK: &str = "…[truncated]";
const TYPE_BYTES_MAX: usize = 255;
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const DETAIL_BYTES_MAX: usize = 64 << 10;
const STACK_BYTES_MAX: usize = 64 << 10;

pub(crate) fn fit_report(report: &mut AttemptReport) {
    if let Some(error) = &mut report.error {
        fit_error(error);
    }
}

pub(crate) fn fit_error(error: &mut AttemptError) {
    fit(&mut error.error_type, TYPE_BYTES_MAX);
    fit(&mut error.message, MESSAGE_BYTES_MAX);
    fit(&mut error.detail, DETAIL_BYTES_MAX);
    fit(&mut error.stack, STACK_BYTES_MAX);
}

/// Takes out NUL, which some backends cannot store in text, and cuts on a character's edge.
fn fit(text: &mut String, bytes_max: usize) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
    if text.len() > bytes_max {
        let mut end = bytes_max - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_on_a_characters_edge_within_its_limit() {
        for (text, expected) in [
            ("x".repeat(255), "x".repeat(255)),
            ("x".repeat(256), format!("{}{MARK}", "x".repeat(241))),
            ("é".repeat(128), format!("{}{MARK}", "é".repeat(120))),
            ("a\0b".into(), "a\u{fffd}b".into()),
            // Each NUL grows to three bytes, and the limit holds all the same.
            ("\0".repeat(255), format!("{}{MARK}", "\u{fffd}".repeat(80))),
        ] {
            let mut fitted = text;
            fit(&mut fitted, TYPE_BYTES_MAX);
            assert_eq!(fitted, expected);
            assert!(fitted.len() <= TYPE_BYTES_MAX);
        }
    }

    #[test]
    fn each_field_has_its_own_limit() {
        let long = "x".repeat(100_000);
        let mut report = AttemptReport {
            error: Some(AttemptError {
                error_type: long.clone(),
                message: long.clone(),
                detail: long.clone(),
                stack: long,
            }),
            ..AttemptReport::default()
        };
        fit_report(&mut report);
        let error = report.error.unwrap_or_default();
        let lens =
            [&error.error_type, &error.message, &error.detail, &error.stack].map(String::len);
        assert_eq!(lens, [255, 4_096, 65_536, 65_536]);
    }
}
