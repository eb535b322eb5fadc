//! A way to the server that loses answers: the server did it, and the caller never hears.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Forwards connections until it is dropped with the test's runtime.
pub(crate) struct Proxy {
    port: u16,
    fault: Arc<Fault>,
}

/// The answer to lose: that of the next call of this function.
#[derive(Default)]
struct Fault {
    function: Mutex<Option<String>>,
    cuts: AtomicUsize,
}

impl Fault {
    /// Whether this is the call whose answer is to be lost; true once.
    fn hits(&self, call: &[u8]) -> bool {
        let mut function = self.function.lock().unwrap_or_else(PoisonError::into_inner);
        let is_hit = function.as_ref().is_some_and(|function| {
            let name = format!("_{function}\r\n");
            call.windows(name.len()).any(|window| window == name.as_bytes())
        });
        if is_hit {
            *function = None;
        }
        is_hit
    }
}

impl Proxy {
    pub(crate) async fn start(server: &str) -> Self {
        let server = server.trim_start_matches("redis://").to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let fault = Arc::new(Fault::default());
        let faults = fault.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(upstream) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(forward(client, upstream, faults.clone()));
            }
        });
        Self { port, fault }
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Loses the answer to the next call of this function, and its connection with it.
    pub(crate) fn cut_next_answer(&self, function: &str) {
        *self.fault.function.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(function.to_owned());
    }

    /// How many answers it lost.
    pub(crate) fn cuts(&self) -> usize {
        self.fault.cuts.load(Ordering::Relaxed)
    }
}

async fn forward(client: TcpStream, upstream: TcpStream, fault: Arc<Fault>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = upstream.into_split();
    let mut is_cut = false;
    let (mut call, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = from_client.read(&mut call) => {
                let Some(bytes) = some(read, &call) else { return };
                is_cut |= fault.hits(bytes);
                if to_server.write_all(bytes).await.is_err() { return }
            }
            read = from_server.read(&mut answer) => {
                let Some(bytes) = some(read, &answer) else { return };
                if is_cut {
                    fault.cuts.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                if to_client.write_all(bytes).await.is_err() { return }
            }
        }
    }
}

fn some(read: std::io::Result<usize>, buffer: &[u8]) -> Option<&[u8]> {
    read.ok().filter(|&len| len > 0).map(|len| &buffer[..len])
}
