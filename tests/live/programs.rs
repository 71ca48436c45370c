//! Where the programs of the testbed are: built on first use by `tests/testbed/build`, then taken from its cache.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tokio::sync::OnceCell;

/// The directory of the testbed's scripts.
pub fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testbed")
}

/// The programs, all in one directory.
#[derive(Debug, Clone)]
pub struct Programs {
    directory: PathBuf,
}

impl Programs {
    /// Builds them if need be (minutes, with a progress line), else finds them (well under a second).
    pub async fn get() -> Result<&'static Self, String> {
        static FOUND: OnceCell<Programs> = OnceCell::const_new();
        FOUND
            .get_or_try_init(|| async {
                tokio::task::spawn_blocking(Self::build)
                    .await
                    .map_err(|error| error.to_string())?
            })
            .await
    }

    fn build() -> Result<Self, String> {
        let script = testbed().join("build");
        let output = Command::new(&script)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot run {}: {error}", script.display()))?;
        let directory = String::from_utf8_lossy(&output.stdout)
            .lines()
            .next_back()
            .map(PathBuf::from);
        match directory {
            Some(directory) if output.status.success() => Ok(Self { directory }),
            _ => Err(format!(
                "{} says why the testbed cannot be built",
                script.display()
            )),
        }
    }

    /// The path of one program.
    pub fn path(&self, program: &str) -> PathBuf {
        self.directory.join(program)
    }
}
