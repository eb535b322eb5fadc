//! The third way: a container. The image, its port and its settings are the database's module's.

use crate::{StartError, watchdog::Watchdog};
use std::path::Path;
use testcontainers::{
    ContainerAsync, GenericImage, ImageExt as _,
    core::{ContainerPort, WaitFor, wait::LogWaitStrategy},
    runners::AsyncRunner as _,
};

/// What to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) port: u16,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    pub(crate) command: &'static [&'static str],
    /// The server writes this when it serves, and so often until then.
    pub(crate) ready: (&'static str, usize),
}

/// A running container. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) host: String,
    pub(crate) port: u16,
    _running: Box<ContainerAsync<GenericImage>>,
    _watchdog: Watchdog,
}

/// Whether there seems to be an engine to ask.
pub(crate) fn engine_is_there() -> bool {
    std::env::var_os("DOCKER_HOST").is_some() || Path::new("/var/run/docker.sock").exists()
}

impl Container {
    /// Runs the image and waits until it serves.
    pub(crate) async fn start(image: &Image) -> Result<Self, StartError> {
        let (ready, times) = image.ready;
        let ready = LogWaitStrategy::stdout_or_stderr(ready).with_times(times);
        let mut request = GenericImage::new(image.name, image.tag)
            .with_exposed_port(ContainerPort::Tcp(image.port))
            .with_wait_for(WaitFor::Log(ready))
            .with_cmd(image.command.iter().copied());
        for (name, value) in image.environment {
            request = request.with_env_var(*name, *value);
        }
        let container = request.start().await?;
        let mut watchdog = Watchdog::start(None)?;
        watchdog.at_end(&format!("docker rm -f -v {}", container.id()))?;
        let host = container.get_host().await?.to_string();
        let port = container.get_host_port_ipv4(ContainerPort::Tcp(image.port)).await?;
        Ok(Self { host, port, _running: Box::new(container), _watchdog: watchdog })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{mongodb, postgres, redis};

    /// The lines of a service in `docker-compose.yml`, which has no deeper structure than it needs.
    fn service(name: &str) -> Vec<String> {
        let compose = include_str!("../../../docker-compose.yml");
        let of_service = compose.lines().skip_while(|line| *line != format!("  {name}:")).skip(1);
        of_service
            .take_while(|line| line.starts_with("    "))
            .map(|line| line.trim().to_owned())
            .collect()
    }

    #[test]
    fn people_and_tests_run_the_same_images_with_the_same_settings() {
        for (name, image, host_port) in [
            ("postgres", &postgres::IMAGE, 5432),
            ("redis", &redis::REDIS, 6379),
            ("valkey", &redis::VALKEY, 6380),
            ("mongodb", &mongodb::IMAGE, 27017),
        ] {
            let Image { name: repository, tag, port, environment, command, ready: _ } = image;
            let words: Vec<_> = command.iter().map(|word| format!("{word:?}")).collect();
            let mut expected = vec![
                format!("image: {repository}:{tag}"),
                format!("command: [{}]", words.join(", ")),
                format!("- \"127.0.0.1:{host_port}:{port}\""),
            ];
            expected.extend(environment.iter().map(|(name, value)| format!("{name}: {value}")));
            let service = service(name);
            for line in expected {
                assert!(service.contains(&line), "{name} has no `{line}`: {service:#?}");
            }
        }
    }
}
