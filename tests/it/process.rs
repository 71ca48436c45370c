//! The real program as a process of its own, on free ports and a directory of its own.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// `freehold` with these arguments, without the settings of whoever runs the tests.
pub fn freehold(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
    command
        .current_dir(directory)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap());
    command
}

/// A program that serves.
pub struct Serving {
    pub process: Child,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub banner: String,
}

/// The settings that make it live beside others.
const APART: [&str; 8] = [
    "--set",
    "api.grpc.listen=127.0.0.1:0",
    "--set",
    "api.http.listen=127.0.0.1:0",
    "--set",
    "embedded.listen=",
    "--set",
    "log.filter=warn",
];

impl Serving {
    /// Starts it and waits for its banner.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::try_start(directory, arguments).unwrap_or_else(|(_, text)| panic!("it did not start: {text}"))
    }

    /// Starts it; a program that ends instead gives its exit status and what it said on standard error.
    pub fn try_start(directory: &Path, arguments: &[&str]) -> Result<Self, (i32, String)> {
        let mut process = freehold(directory, &APART)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut banner = String::new();
        while let Some(Ok(line)) = lines.next() {
            let done = line.contains("watch inventory.nodes");
            banner.push_str(&line);
            banner.push('\n');
            if done {
                break;
            }
        }
        let address = |label: &str| {
            let line = banner.lines().find(|line| line.trim_start().starts_with(label))?;
            line.rsplit("//").next()?.parse().ok()
        };
        let (Some(grpc), Some(http)) = (address("gRPC"), address("HTTP")) else {
            let mut text = String::new();
            process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            let status = process.wait().unwrap().code().unwrap_or(-1);
            return Err((status, text));
        };
        // Nobody reads what it logs later: the pipe must not fill up.
        let mut rest = process.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
        std::thread::spawn(move || lines.count());
        Ok(Self {
            process,
            grpc,
            http,
            banner,
        })
    }

    /// Runs a client command against it.
    pub fn client(&self, arguments: &[&str]) -> Output {
        let server = format!("http://{}", self.grpc);
        freehold(Path::new("/"), &["--server", &server])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// The document a client command prints.
    pub fn document(&self, arguments: &[&str]) -> Value {
        let output = self.client(&[arguments, &["-o", "json"]].concat());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// An HTTP call; status and body.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.http,
            body.len()
        );
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or(0);
        let body = answer
            .split_once("\r\n\r\n")
            .map_or("", |(_, body)| body)
            .to_owned();
        (status, body)
    }

    /// Ends it as an operator would; returns its exit status.
    pub fn terminate(mut self) -> i32 {
        signal(self.process.id(), "TERM");
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(began.elapsed() < PATIENCE, "it did not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends a signal by name.
pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits until something holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How large heavy tests are: the figures of CI, or those of the issues with FREEHOLD_SCALE=full.
pub fn scaled(ci: usize, full: usize) -> usize {
    match std::env::var("FREEHOLD_SCALE").as_deref() {
        Ok("full") => full,
        _ => ci,
    }
}
