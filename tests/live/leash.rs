//! Processes that cannot outlive us: each runs under `tests/testbed/leash`, which holds the other end of a pipe
//! of ours. When we drop the pipe, fail, or are killed, it ends the process and the last one removes the directory.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::Duration,
};

use super::programs::testbed;

/// A process and its leash.
#[derive(Debug)]
pub struct Leashed {
    name: String,
    log: PathBuf,
    leash: Child,
    pipe: Option<ChildStdin>,
}

impl Leashed {
    /// Starts a program; what it writes goes to `NAME.log` in the directory, after what was there.
    pub fn start(directory: &Path, name: &str, program: &Path, arguments: &[String]) -> io::Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut leash = Command::new(testbed().join("leash"))
            .arg(directory)
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: Ctrl-C in the terminal is for us, and the leash then cleans up.
            .process_group(0)
            .spawn()?;
        let pipe = leash.stdin.take();
        Ok(Self {
            name: name.to_owned(),
            log,
            leash,
            pipe,
        })
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.leash.try_wait().ok().flatten()
    }

    /// Ends the program at once, as a crash would. The directory stays.
    pub async fn kill(&mut self) {
        self.tell("kill").await;
    }

    /// Ends the program in good order. The directory stays.
    pub async fn terminate(&mut self) {
        self.tell("term").await;
    }

    async fn tell(&mut self, word: &str) {
        if let Some(mut pipe) = self.pipe.take() {
            // It may have ended already: then there is nobody to tell.
            let _ = writeln!(pipe, "{word}");
            while self.ended().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Lets go: the program ends at once. Does not wait for it.
    pub fn release(&mut self) {
        self.pipe = None;
    }

    /// Waits until nothing is left of it.
    pub fn wait(&mut self) {
        self.release();
        let _ = self.leash.wait();
    }

    /// What a reader needs to know of a failure: the name, how it ended, the last lines of the log.
    pub fn epitaph(&mut self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(15)..].join("\n");
        match self.ended() {
            Some(status) => format!("{} ended ({status}); its log ends with:\n{last}", self.name),
            None => format!("{} runs; its log ends with:\n{last}", self.name),
        }
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        self.wait();
    }
}
