//! What runs in the simulated containers: a few lines of log, and a toy shell.
//!
//! Nothing here touches the host. The shell knows `echo`, `env`, `hostname`, `cat`, `sleep`, `true`,
//! `false`, `exit n` and `sh -c` of those, parted by `;`, `&&` and `||`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Pace,
    document::{Key, at, list, text},
    resources::PODS,
};
use crate::{
    ports::clock::Clock,
    sim::{
        api::containers::{ContainerRef, Containers, Exit, Log, LogLine, LogOf, Session},
        objects::{Objects, Refusal},
    },
};

/// The containers of the embedded cluster.
#[derive(Debug)]
pub struct SimulatedContainers {
    /// Where it looks whether a pod still runs.
    pub objects: Objects,
    /// Times of log lines.
    pub clock: Arc<dyn Clock>,
    /// How fast followed logs grow.
    pub pace: Pace,
}

/// How often a running container prints a line.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Most lines of the past: older ones were rotated away.
const KEPT: i64 = 100;

impl Containers for SimulatedContainers {
    fn log(&self, container: &ContainerRef, which: LogOf, follow: bool) -> Result<Log, Refusal> {
        let status = status(&container.pod, &container.container);
        let name = text(&container.pod, "metadata.name");
        if which == LogOf::Previous
            && status.is_none_or(|status| at(status, "lastState.terminated").is_none())
        {
            let message = format!(
                "previous terminated container \"{}\" in pod \"{name}\" not found",
                container.container
            );
            return Err(Refusal::bad_request(message));
        }
        let waiting = status.map_or("ContainerCreating", |status| text(status, "state.waiting.reason"));
        if which == LogOf::Present
            && matches!(waiting, "ContainerCreating" | "ImagePullBackOff" | "ErrImagePull")
        {
            let message = format!(
                "container \"{}\" in pod \"{name}\" is waiting to start: {waiting}",
                container.container
            );
            return Err(Refusal::bad_request(message));
        }
        let past = self.past(container, status);
        let running = status.is_some_and(|status| at(status, "state.running").is_some());
        let future = if follow && running && which == LogOf::Present {
            self.future(container)
        } else {
            stream::empty().boxed()
        };
        Ok(Log { past, future })
    }

    fn exec(&self, session: Session) -> BoxFuture<'static, Result<Exit, Refusal>> {
        Box::pin(run(session))
    }
}

impl SimulatedContainers {
    fn past(&self, container: &ContainerRef, status: Option<&Value>) -> Vec<LogLine> {
        let started = status.and_then(|status| {
            let paths = [
                "state.running.startedAt",
                "state.terminated.startedAt",
                "lastState.terminated.startedAt",
            ];
            paths
                .iter()
                .find_map(|path| text(status, path).parse::<Timestamp>().ok())
        });
        let started = started.unwrap_or_else(|| self.clock.wall());
        let image = list(&container.pod, "spec.containers")
            .iter()
            .find(|other| text(other, "name") == container.container)
            .map_or("", |container| text(container, "image"));
        let crashed = status.is_some_and(|status| {
            at(status, "lastState.terminated").is_some() || text(status, "state.terminated.reason") == "Error"
        });
        let pod = text(&container.pod, "metadata.name");
        let mut said = vec![
            format!(
                "simulated container {} of pod {pod} starting",
                container.container
            ),
            format!("image {image}"),
            "listening, and waiting for work".to_owned(),
        ];
        if crashed {
            said.truncate(2);
            said.push("fatal: this image is made to fail".to_owned());
        }
        let mut lines: Vec<LogLine> = said
            .into_iter()
            .map(|text| LogLine { at: started, text })
            .collect();
        if status.is_some_and(|status| at(status, "state.running").is_some()) {
            let beats = self.clock.wall().duration_since(started).as_secs() / 10;
            let first = beats.saturating_sub(KEPT).max(0);
            lines.extend((first + 1..=beats).map(|beat| heartbeat(started, beat)));
        }
        lines
    }

    /// A line every ten seconds until the pod has ended.
    fn future(&self, container: &ContainerRef) -> stream::BoxStream<'static, LogLine> {
        let (objects, clock) = (self.objects.clone(), Arc::clone(&self.clock));
        let (key, uid) = (
            Key::of(&container.pod),
            text(&container.pod, "metadata.uid").to_owned(),
        );
        let pause = self.pace.repeated(HEARTBEAT);
        let lines = stream::unfold(1_i64, move |beat| {
            let (objects, clock, key, uid) = (objects.clone(), Arc::clone(&clock), key.clone(), uid.clone());
            async move {
                let deadline = tokio::time::Instant::now() + pause;
                let mut cursor = objects.cursor(Some(&PODS), None).ok()?;
                loop {
                    let pod = objects.get(&PODS, &key.namespace, &key.name)?;
                    if text(&pod, "metadata.uid") != uid || super::pods::is_finished(&pod) {
                        return None;
                    }
                    // A reader that fell behind only looks again.
                    let _ = cursor.read();
                    tokio::select! {
                        () = tokio::time::sleep_until(deadline) => break,
                        () = cursor.changed() => {}
                    }
                }
                let line = LogLine {
                    at: clock.wall(),
                    text: format!("still here, followed for {} beats", beat),
                };
                Some((line, beat.saturating_add(1)))
            }
        });
        lines.boxed()
    }
}

fn heartbeat(started: Timestamp, beat: i64) -> LogLine {
    let at = started
        .checked_add(SignedDuration::from_secs(beat.saturating_mul(10)))
        .unwrap_or(started);
    LogLine {
        at,
        text: format!("still here after {} s", beat.saturating_mul(10)),
    }
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let all = list(pod, "status.containerStatuses")
        .iter()
        .chain(list(pod, "status.initContainerStatuses"));
    let mut all = all;
    all.find(|status| text(status, "name") == container)
}

/// Runs the command of a session.
async fn run(mut session: Session) -> Result<Exit, Refusal> {
    let Some(command) = session.command.take() else {
        // Attached: there is nothing to see; it lasts until the client leaves.
        while session.stdin.recv().await.is_some() {}
        return Ok(Exit { code: 0 });
    };
    let mut shell = Shell {
        session: &mut session,
    };
    let code = shell.run(&command, 0).await.unwrap_or_else(|Ended(code)| code);
    Ok(Exit { code })
}

/// The script said `exit`.
struct Ended(i32);

struct Shell<'a> {
    session: &'a mut Session,
}

impl Shell<'_> {
    fn run<'a>(&'a mut self, command: &'a [String], depth: u8) -> BoxFuture<'a, Result<i32, Ended>> {
        Box::pin(async move {
            let Some((program, arguments)) = command.split_first() else {
                return Ok(0);
            };
            let program = program.rsplit('/').next().unwrap_or(program);
            match program {
                "true" | ":" => Ok(0),
                "false" => Ok(1),
                "echo" => {
                    let (line, end) = match arguments.split_first() {
                        Some((flag, rest)) if flag == "-n" => (rest.join(" "), ""),
                        _ => (arguments.join(" "), "\n"),
                    };
                    self.print(format!("{line}{end}")).await;
                    Ok(0)
                }
                "env" | "printenv" => {
                    self.print(environment(&self.session.container)).await;
                    Ok(0)
                }
                "hostname" => {
                    let name = text(&self.session.container.pod, "metadata.name").to_owned();
                    self.print(format!("{name}\n")).await;
                    Ok(0)
                }
                "cat" if arguments.is_empty() => {
                    while let Some(bytes) = self.session.stdin.recv().await {
                        if self.session.stdout.send(bytes).await.is_err() {
                            break;
                        }
                    }
                    Ok(0)
                }
                "sleep" => {
                    let seconds: f64 = arguments
                        .first()
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(0.0);
                    let pause = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                    tokio::time::sleep(pause.min(Duration::from_secs(3600))).await;
                    Ok(0)
                }
                "exit" => Err(Ended(
                    arguments.first().and_then(|text| text.parse().ok()).unwrap_or(0) & 0xff,
                )),
                "sh" | "bash" if depth < 4 => self.shell(arguments, depth).await,
                _ => {
                    let complaint = format!(
                        "{program}: not found in the simulation (echo, env, hostname, cat, sleep, true, false, exit, sh)\n"
                    );
                    self.complain(complaint).await;
                    Ok(127)
                }
            }
        })
    }

    /// `sh -c SCRIPT`, or a script typed in line by line.
    async fn shell(&mut self, arguments: &[String], depth: u8) -> Result<i32, Ended> {
        if let Some(script) = arguments
            .iter()
            .position(|flag| flag == "-c")
            .and_then(|place| arguments.get(place + 1))
        {
            return Ok(self
                .script(script, depth)
                .await
                .unwrap_or_else(|Ended(code)| code));
        }
        let mut typed = String::new();
        let mut code = 0;
        while let Some(bytes) = self.session.stdin.recv().await {
            typed.push_str(&String::from_utf8_lossy(&bytes));
            if typed.len() > 65_536 {
                return Ok(2);
            }
            while let Some(end) = typed.find(['\n', '\r']) {
                let line: String = typed.drain(..=end).collect();
                match self.script(line.trim(), depth).await {
                    Ok(result) => code = result,
                    Err(Ended(code)) => return Ok(code),
                }
            }
        }
        if !typed.trim().is_empty() {
            return Ok(self
                .script(typed.trim(), depth)
                .await
                .unwrap_or_else(|Ended(code)| code));
        }
        Ok(code)
    }

    async fn script(&mut self, script: &str, depth: u8) -> Result<i32, Ended> {
        let mut code = 0;
        for (joint, words) in parse(script) {
            let runs = match joint {
                Joint::Then => true,
                Joint::And => code == 0,
                Joint::Or => code != 0,
            };
            if runs {
                let pod = Arc::clone(&self.session.container.pod);
                let words: Vec<String> = words
                    .into_iter()
                    .map(|word| expand(&word, &pod, &self.session.container, code))
                    .collect();
                code = self.run(&words, depth + 1).await?;
            }
        }
        Ok(code)
    }

    async fn print(&self, text: String) {
        // A client that left wants no output.
        let _ = self.session.stdout.send(Bytes::from(self.terminal(text))).await;
    }

    async fn complain(&self, text: String) {
        let to = if self.session.tty {
            &self.session.stdout
        } else {
            &self.session.stderr
        };
        let _ = to.send(Bytes::from(self.terminal(text))).await;
    }

    fn terminal(&self, text: String) -> String {
        if self.session.tty {
            text.replace('\n', "\r\n")
        } else {
            text
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joint {
    Then,
    And,
    Or,
}

/// Splits a script into commands and words; quotes hold words together.
fn parse(script: &str) -> Vec<(Joint, Vec<String>)> {
    let mut commands = Vec::new();
    let (mut joint, mut words, mut word) = (Joint::Then, Vec::new(), None::<String>);
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = match letter {
            '\'' | '"' => {
                let quoted: String = letters.by_ref().take_while(|other| *other != letter).collect();
                let quoted = if letter == '\'' {
                    quoted.replace('$', "\u{0}")
                } else {
                    quoted
                };
                word.get_or_insert_default().push_str(&quoted);
                continue;
            }
            ';' | '\n' => Some(Joint::Then),
            '&' if letters.peek() == Some(&'&') => Some(Joint::And),
            '|' if letters.peek() == Some(&'|') => Some(Joint::Or),
            letter if letter.is_whitespace() => None,
            letter => {
                word.get_or_insert_default().push(letter);
                continue;
            }
        };
        words.extend(word.take());
        if let Some(next) = next {
            if next != Joint::Then {
                letters.next();
            }
            if !words.is_empty() {
                commands.push((joint, std::mem::take(&mut words)));
            }
            joint = next;
        }
    }
    words.extend(word);
    if !words.is_empty() {
        commands.push((joint, words));
    }
    commands
}

/// Puts values in the place of `$NAME`, `${NAME}` and `$?`.
fn expand(word: &str, _pod: &Value, container: &ContainerRef, code: i32) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('?') {
            out.push_str(&code.to_string());
            rest = after;
            continue;
        }
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, tail) = braced.unwrap_or_else(|| {
            let end = after
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(after.len());
            after.split_at(end)
        });
        if name.is_empty() {
            out.push('$');
        }
        let all = variables(container);
        out.push_str(
            all.iter()
                .find(|(other, _)| other == name)
                .map_or("", |(_, value)| value),
        );
        rest = tail;
    }
    out.push_str(rest);
    out.replace('\u{0}', "$")
}

fn environment(container: &ContainerRef) -> String {
    variables(container)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect()
}

/// The container's environment: its own, and what every container has.
fn variables(container: &ContainerRef) -> Vec<(String, String)> {
    let pod = &container.pod;
    let mut variables = vec![
        (
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
        ("HOSTNAME".to_owned(), text(pod, "metadata.name").to_owned()),
        ("KUBERNETES_SERVICE_HOST".to_owned(), "10.96.0.1".to_owned()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), "443".to_owned()),
    ];
    let own = list(pod, "spec.containers")
        .iter()
        .chain(list(pod, "spec.initContainers"));
    let mut own = own;
    let spec = own.find(|other| text(other, "name") == container.container);
    for variable in spec.map_or(&[][..], |spec| list(spec, "env")) {
        let field = text(variable, "valueFrom.fieldRef.fieldPath");
        let value = if field.is_empty() {
            text(variable, "value")
        } else {
            text(pod, field)
        };
        variables.push((text(variable, "name").to_owned(), value.to_owned()));
    }
    variables
}
