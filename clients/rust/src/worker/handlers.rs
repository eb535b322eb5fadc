//! Handlers by name and version, and which of them runs a task. It runs none.

use crate::{HandlerError, Job, Outcome};
use futures::{FutureExt as _, future::BoxFuture};
use std::{collections::HashMap, fmt, sync::Arc};

/// What a handler returned, before the worker sends it.
pub type Returned = Result<Outcome, HandlerError>;

pub(super) type Handler = Arc<dyn Fn(Job) -> BoxFuture<'static, Returned> + Send + Sync>;

/// The handlers of a worker.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    by_name: HashMap<String, Versions>,
}

#[derive(Clone, Default)]
struct Versions {
    without: Option<Handler>,
    by_version: HashMap<String, Handler>,
    /// The last one that was registered with a version.
    last: Option<Handler>,
}

/// Who runs a task.
pub(super) enum Route {
    To(Handler),
    /// There is no handler of this version, and no other may run it.
    VersionMismatch,
    /// There is no handler of this name.
    Unroutable,
}

impl Handlers {
    pub(super) fn add<H, F, T, E>(&mut self, name: String, version: Option<String>, handler: H)
    where
        H: Fn(Job) -> F + Send + Sync + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Outcome>,
        E: Into<HandlerError>,
    {
        let handler: Handler = Arc::new(move |job| {
            let running = handler(job);
            async { running.await.map(Into::into).map_err(Into::into) }.boxed()
        });
        let versions = self.by_name.entry(name).or_default();
        match version {
            None => versions.without = Some(handler),
            Some(version) => {
                versions.last = Some(Arc::clone(&handler));
                versions.by_version.insert(version, handler);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Who runs a task that names this handler and version. With `is_strict`, no other version may.
    pub(super) fn route(&self, name: &str, version: Option<&str>, is_strict: bool) -> Route {
        let Some(versions) = self.by_name.get(name) else { return Route::Unroutable };
        let exact = version.and_then(|version| versions.by_version.get(version));
        if let Some(handler) = exact {
            return Route::To(Arc::clone(handler));
        }
        if version.is_some() && is_strict {
            return Route::VersionMismatch;
        }
        match versions.without.as_ref().or(versions.last.as_ref()) {
            Some(handler) => Route::To(Arc::clone(handler)),
            None => Route::Unroutable,
        }
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers(versions: &[Option<&'static str>]) -> Handlers {
        let mut handlers = Handlers::default();
        for version in versions {
            let result = version.unwrap_or("none");
            let handler = move |_| async move { Ok::<_, fmt::Error>(result) };
            handlers.add("h".into(), version.map(Into::into), handler);
        }
        handlers
    }

    fn route(handlers: &Handlers, version: Option<&str>, is_strict: bool) -> String {
        let handler = match handlers.route("h", version, is_strict) {
            Route::To(handler) => handler,
            Route::VersionMismatch => return "mismatch".into(),
            Route::Unroutable => return "unroutable".into(),
        };
        let task = crate::Task::decode(bytes::Bytes::new()).unwrap();
        let job = Job::new(task, (1, 1, 1), crate::job::Controls::default());
        match handler(job).now_or_never().unwrap().unwrap() {
            Outcome::Complete(result) => String::from_utf8(result.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_version_of_the_task_goes_first_then_the_one_without_then_the_last() {
        let both = handlers(&[Some("1"), None, Some("2")]);
        assert_eq!(route(&both, Some("1"), true), "1");
        assert_eq!(route(&both, None, true), "none");
        assert_eq!(route(&both, Some("3"), true), "mismatch");
        assert_eq!(route(&both, Some("3"), false), "none");
        let versions = handlers(&[Some("1"), Some("2")]);
        assert_eq!(route(&versions, Some("3"), false), "2");
        assert_eq!(route(&versions, None, false), "2");
        assert_eq!(route(&handlers(&[]), None, false), "unroutable");
    }
}
