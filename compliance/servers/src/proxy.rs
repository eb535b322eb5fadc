//! A way to a server that loses answers (the server did it, and the caller never hears) or is cut.
//!
//! It reads no protocol: a call is known by bytes that only it has in it, such as a task's id. So a
//! fault meets the call that it is meant for, whatever else its connection is asked in between.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Forwards connections to one server, until the test's runtime ends.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    /// What the call has in it whose answer is to be lost.
    doomed: Mutex<Option<Vec<u8>>>,
    lost: AtomicUsize,
    /// Counts the cuts; every connection that is older than one is cut.
    cuts: watch::Sender<usize>,
}

impl Faults {
    /// Whether this is the call whose answer is to be lost; true once.
    fn meet(&self, call: &[u8]) -> bool {
        let mut doomed = self.doomed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_met = doomed
            .as_ref()
            .is_some_and(|bytes| call.windows(bytes.len()).any(|window| window == bytes));
        if is_met {
            *doomed = None;
        }
        is_met
    }
}

impl Proxy {
    /// Before the server at this address (`host:port`).
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn before(server: impl Into<String>) -> std::io::Result<Self> {
        let server = server.into();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults {
            doomed: Mutex::default(),
            lost: AtomicUsize::new(0),
            cuts: watch::Sender::default(),
        });
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = shared.cuts.subscribe();
                let Ok(upstream) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(forward(client, upstream, Arc::clone(&shared), cut));
            }
        });
        Ok(Self { address, faults })
    }

    /// Where callers find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses the answer to the next call that has these bytes in it, and the connection with it.
    pub fn lose_answer_to(&self, call: impl Into<Vec<u8>>) {
        *self.faults.doomed.lock().unwrap_or_else(PoisonError::into_inner) = Some(call.into());
    }

    /// How many answers it lost.
    pub fn lost(&self) -> usize {
        self.faults.lost.load(Ordering::SeqCst)
    }

    /// Cuts every connection.
    pub fn cut_all(&self) {
        self.faults.cuts.send_modify(|cuts| *cuts += 1);
    }
}

async fn forward(
    client: TcpStream,
    upstream: TcpStream,
    faults: Arc<Faults>,
    mut cut: watch::Receiver<usize>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = upstream.into_split();
    let (mut call, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_doomed = false;
    loop {
        tokio::select! {
            _ = cut.changed() => return,
            read = from_client.read(&mut call) => {
                let Some(bytes) = some(read, &call) else { return };
                is_doomed |= faults.meet(bytes);
                if to_server.write_all(bytes).await.is_err() { return }
            }
            read = from_server.read(&mut answer) => {
                let Some(bytes) = some(read, &answer) else { return };
                if is_doomed {
                    faults.lost.fetch_add(1, Ordering::SeqCst);
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
