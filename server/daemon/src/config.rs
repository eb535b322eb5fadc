//! Configuration: flags over environment over file over defaults.

use rdq_engine::{EngineOptions, QueueFile};
use rdq_spi::{QueueConfig, QueueName};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

const STORAGE: &str = "sqlite:rdq.db";
const GRACE: Duration = Duration::from_secs(30);
/// Workers have so much of a shutdown to send what they finished, and so long at most: the rest is
/// for what they sent to be stored, and for connections to end.
const DRAIN_SHARE: u32 = 2;
const DRAIN_GRACE_MAX: Duration = Duration::from_secs(5);
const GRPC_PORT: u16 = 7420;
const HTTP_PORT: u16 = 7421;

/// What `rdq serve` takes. Every option is a flag, an environment variable and a key of the
/// configuration file, in that order of precedence.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServeArgs {
    /// Address of the gRPC services [default: 127.0.0.1:7420]
    #[arg(long, env = "RDQ_LISTEN", value_name = "ADDRESS", hide_env_values = true)]
    pub listen: Option<SocketAddr>,

    /// Address of /healthz and /readyz [default: 127.0.0.1:7421]
    #[arg(long, env = "RDQ_HTTP", value_name = "ADDRESS", hide_env_values = true)]
    pub http: Option<SocketAddr>,

    /// Where tasks are kept: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST/DATABASE`,
    /// `redis://HOST:PORT`, `mongodb://USER:PASSWORD@HOST/DATABASE`, `memory:` or `http://HOST:PORT`
    /// of another rdq [default: sqlite:rdq.db]
    #[arg(long, env = "RDQ_STORAGE", value_name = "URL", hide_env_values = true)]
    pub storage: Option<String>,

    /// A YAML file with these options, `defaults` for every queue, and `queues` by name
    #[arg(long, env = "RDQ_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,

    /// Listen beyond loopback although callers are not authenticated
    #[arg(long, env = "RDQ_INSECURE", value_name = "BOOL", hide_env_values = true)]
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    pub insecure: Option<bool>,

    /// Refuse queues that no file and no stored configuration declares
    #[arg(long, env = "RDQ_REQUIRE_DECLARED_QUEUES", value_name = "BOOL", hide_env_values = true)]
    #[arg(num_args = 0..=1, default_missing_value = "true")]
    pub require_declared_queues: Option<bool>,

    /// How long a shutdown waits for calls under way, such as `30s` [default: 30s]
    #[arg(long, env = "RDQ_SHUTDOWN_GRACE", value_name = "DURATION", hide_env_values = true)]
    #[arg(value_parser = humantime::parse_duration)]
    pub shutdown_grace: Option<Duration>,

    /// A file with the key that signs page tokens, at least 16 bytes. Without one, the servers on
    /// one storage agree on a key that they keep there
    #[arg(long, env = "RDQ_PAGE_TOKEN_KEY_FILE", value_name = "FILE", hide_env_values = true)]
    pub page_token_key_file: Option<PathBuf>,
}

/// What `rdq migrate` takes: the options of `rdq serve` that name the storage.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct MigrateArgs {
    /// The storage to prepare: `sqlite:PATH`, `postgres://USER:PASSWORD@HOST/DATABASE` or
    /// `redis://HOST:PORT` [default: sqlite:rdq.db]
    #[arg(long, env = "RDQ_STORAGE", value_name = "URL", hide_env_values = true)]
    pub storage: Option<String>,

    /// The YAML file of `rdq serve`, for its `storage`
    #[arg(long, env = "RDQ_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

impl MigrateArgs {
    /// The URL of the storage.
    pub(crate) fn storage(self) -> Result<String, ConfigError> {
        let file = self.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        Ok(self.storage.or(file.storage).unwrap_or_else(|| STORAGE.to_owned()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the names are the file's keys")]
struct File {
    listen: Option<SocketAddr>,
    http: Option<SocketAddr>,
    storage: Option<String>,
    insecure: Option<bool>,
    require_declared_queues: Option<bool>,
    #[serde(with = "rdq_spi::human_duration")]
    shutdown_grace: Option<Duration>,
    page_token_key_file: Option<PathBuf>,
    defaults: QueueConfig,
    queues: BTreeMap<QueueName, QueueConfig>,
}

/// The configuration in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) storage: String,
    pub(crate) shutdown_grace: Duration,
    pub(crate) engine: EngineOptions,
}

/// Why there is no configuration to serve with.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not YAML of the form that `rdq serve` takes.
    #[error("{path} is not a valid configuration: {message}")]
    Invalid {
        /// Which.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// Callers beyond this machine would not be authenticated.
    #[error(
        "{address} can be reached from beyond this machine, and callers are not authenticated; \
         listen on a loopback address, or say --insecure if that is meant"
    )]
    Insecure {
        /// The address.
        address: SocketAddr,
    },
}

impl Config {
    /// Reads the file, if one is named, and resolves every option.
    pub(crate) fn resolve(args: ServeArgs) -> Result<Self, ConfigError> {
        let file = args.config.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listen = args.listen.or(file.listen).unwrap_or_else(|| local(GRPC_PORT));
        let http = args.http.or(file.http).unwrap_or_else(|| local(HTTP_PORT));
        if !args.insecure.or(file.insecure).unwrap_or(false) {
            let beyond = [listen, http].into_iter().find(|address| !address.ip().is_loopback());
            if let Some(address) = beyond {
                return Err(ConfigError::Insecure { address });
            }
        }
        let key_file = args.page_token_key_file.or(file.page_token_key_file);
        let shutdown_grace = args.shutdown_grace.or(file.shutdown_grace).unwrap_or(GRACE);
        let page_token_key = key_file.as_deref().map(read).transpose()?;
        Ok(Self {
            listen,
            http,
            storage: args.storage.or(file.storage).unwrap_or_else(|| STORAGE.to_owned()),
            shutdown_grace,
            engine: EngineOptions {
                file: QueueFile { defaults: file.defaults, queues: file.queues },
                require_declared_queues: args
                    .require_declared_queues
                    .or(file.require_declared_queues)
                    .unwrap_or(false),
                page_token_key,
                drain_grace: (shutdown_grace / DRAIN_SHARE).min(DRAIN_GRACE_MAX),
                ..EngineOptions::default()
            },
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

fn read_file(path: &Path) -> Result<File, ConfigError> {
    let invalid = |message: String| ConfigError::Invalid { path: path.to_owned(), message };
    let text = String::from_utf8(read(path)?).map_err(|_| invalid("it is not UTF-8".to_owned()))?;
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    serde_saphyr::from_str(&text).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rdq.yaml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_defaults() {
        let (_folder, path) = written(
            "listen: 127.0.0.1:1\nstorage: 'memory:'\nshutdown_grace: 5s\n\
             defaults: {retry: {max_attempts: 7}}\n\
             queues: {emails: {execution: {lease: 90s}, paused: true}}\n",
        );
        let args = ServeArgs {
            config: Some(path),
            storage: Some("sqlite:x.db".into()),
            ..ServeArgs::default()
        };
        let config = Config::resolve(args).unwrap();
        assert_eq!(config.listen.port(), 1);
        assert_eq!(config.storage, "sqlite:x.db");
        assert_eq!(config.http.port(), HTTP_PORT);
        assert_eq!(config.shutdown_grace, Duration::from_secs(5));
        assert_eq!(config.engine.file.defaults.retry.max_attempts, Some(7));
        let (name, emails) = config.engine.file.queues.first_key_value().unwrap();
        assert_eq!(name.as_str(), "emails");
        assert_eq!(emails.execution.lease, Some(Duration::from_secs(90)));
    }

    #[test]
    fn workers_have_half_of_a_short_shutdown_and_never_long() {
        for (grace, expected) in
            [(Some(1), 500), (Some(5), 2_500), (Some(60), 5_000), (None, 5_000)]
        {
            let shutdown_grace = grace.map(Duration::from_secs);
            let config = Config::resolve(ServeArgs { shutdown_grace, ..ServeArgs::default() });
            let drain_grace = config.unwrap().engine.drain_grace;
            assert_eq!(drain_grace, Duration::from_millis(expected), "{grace:?}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_its_name() {
        for (text, key) in [
            ("listn: 127.0.0.1:1\n", "listn"),
            ("defaults: {retry: {max_atempts: 7}}\n", "max_atempts"),
            ("queues: {emails: {lease: 9s}}\n", "lease"),
            ("queues: {__rdq_x: {}}\n", "__rdq_"),
        ] {
            let (_folder, path) = written(text);
            let args = ServeArgs { config: Some(path), ..ServeArgs::default() };
            let error = Config::resolve(args).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn beyond_loopback_one_must_say_so() {
        let args =
            ServeArgs { listen: Some("0.0.0.0:7420".parse().unwrap()), ..ServeArgs::default() };
        assert!(matches!(Config::resolve(args.clone()), Err(ConfigError::Insecure { .. })));
        assert!(Config::resolve(ServeArgs { insecure: Some(true), ..args }).is_ok());
    }
}
