//! Lists: a page at a time, or all of them as one stream. What a page holds is said elsewhere.

use crate::Error;
use futures::{
    Stream, StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A part of a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page<T> {
    /// What is on it; may be less than was asked for.
    pub items: Vec<T>,
    /// Names the next page; none after the last.
    pub next: Option<String>,
}

impl<T> Page<T> {
    pub(crate) fn new(items: Vec<T>, next: String) -> Self {
        Self { items, next: Some(next).filter(|next| !next.is_empty()) }
    }
}

type Fetch<T> = dyn Fn(String) -> BoxFuture<'static, Result<Page<T>, Error>> + Send + Sync;

/// A list, before anything of it was asked for.
#[derive(Clone)]
#[must_use = "nothing is asked for before `page` or `items`"]
pub struct Pages<T> {
    fetch: Arc<Fetch<T>>,
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Pages<T> {
    /// `fetch` asks for the page of a token; the first one's is empty.
    pub(crate) fn new<F>(fetch: impl Fn(String) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Page<T>, Error>> + Send + 'static,
    {
        Self { fetch: Arc::new(move |token| Box::pin(fetch(token))) }
    }

    /// The first page, or the one that an earlier page named as its next.
    pub async fn page(&self, token: Option<&str>) -> Result<Page<T>, Error> {
        (self.fetch)(token.unwrap_or_default().to_owned()).await
    }

    /// All items of all pages, fetched as they are taken. Ends with the first error.
    pub fn items(self) -> Items<T> {
        let pages = stream::try_unfold(Some(String::new()), move |token| {
            let page = token.map(|token| (self.fetch)(token));
            async move {
                let Some(page) = page else { return Ok::<_, Error>(None) };
                let page = page.await?;
                Ok(Some((stream::iter(page.items.into_iter().map(Ok)), page.next)))
            }
        });
        Items(pages.try_flatten().boxed())
    }
}

/// All items of a list: a [`Stream`], and with [`next`](Self::next) and
/// [`collect`](Self::collect) of its own for who has none of its traits at hand.
pub struct Items<T>(BoxStream<'static, Result<T, Error>>);

impl<T> Items<T> {
    /// The next item; none after the last.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        self.0.next().await
    }

    /// All that are left.
    pub async fn collect(self) -> Result<Vec<T>, Error> {
        self.0.try_collect().await
    }
}

impl<T> Stream for Items<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Pages<u32> {
        Pages::new(|token| async move {
            match token.as_str() {
                "" => Ok(Page::new(vec![1, 2], "b".into())),
                "b" => Ok(Page::new(vec![], "c".into())),
                "c" => Ok(Page::new(vec![3], String::new())),
                _ => Err(Error::invalid("page_token", "none of these")),
            }
        })
    }

    #[tokio::test]
    async fn an_empty_page_does_not_end_a_list() {
        assert_eq!(three().items().collect().await.unwrap(), [1, 2, 3]);
        assert_eq!(three().page(Some("c")).await.unwrap().next, None);
    }

    #[tokio::test]
    async fn an_error_ends_it() {
        let pages = Pages::new(|token| async move {
            if token.is_empty() {
                Ok(Page::new(vec![1], "b".into()))
            } else {
                Err(Error::timed_out())
            }
        });
        let mut items = pages.items();
        assert_eq!(items.next().await.unwrap().unwrap(), 1);
        assert!(items.next().await.unwrap().is_err());
        assert!(items.next().await.is_none());
    }
}
