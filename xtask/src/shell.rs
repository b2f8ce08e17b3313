//! Running other programs. In: a `Command`. Out: its success, its output, or an error that says which command failed and
//! how, in the form in which a person could type it.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The command as a person would type it: the variables that it sets, the program, the arguments.
pub fn display(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        // A flag list is separated by a byte that no terminal shows; cargo takes the same list with spaces.
        Some(match name.to_str() {
            Some("CARGO_ENCODED_RUSTFLAGS") => {
                format!("RUSTFLAGS={}", quote(value?).replace('\x1f', " "))
            }
            _ => format!("{}={}", name.to_string_lossy(), quote(value?)),
        })
    });
    let words = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quote);
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

/// A word in single quotes if a shell would not take it as it is.
fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs a command with its output on the terminal and no input. An exit code other than 0 is an error that names it.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = display(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}

/// What a command prints on its standard output, or nothing when it cannot start or fails.
pub fn capture(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Becomes the command, so that signals reach it. Returns only when that failed.
pub fn exec(command: &mut Command) -> anyhow::Error {
    let shown = display(command);
    anyhow::Error::new(command.exec()).context(format!("cannot start `{shown}`"))
}

/// Where a program is: in PATH, or in the folders for administrators that a user's PATH may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    programs(name).next()
}

/// All programs of that name, in the order of PATH.
pub fn programs(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .filter(|folder| folder.is_absolute())
        .collect();
    let name = name.to_owned();
    folders
        .into_iter()
        .map(move |folder| folder.join(&name))
        .filter(|file| is_executable(file))
}

/// True for a file that somebody may run.
pub fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("cargo");
        command
            .args(["build", "--features", "a b", "it's"])
            .env("LLVM_PREFIX", "/usr/lib/llvm-22")
            .env_remove("RUSTC");
        assert_eq!(
            display(&command),
            r"LLVM_PREFIX=/usr/lib/llvm-22 cargo build --features 'a b' 'it'\''s'"
        );
    }

    #[test]
    fn encoded_flags_are_shown_with_spaces() {
        let mut command = Command::new("cargo");
        command.env("CARGO_ENCODED_RUSTFLAGS", "-Ca=b\x1f-Cc=d");
        assert_eq!(display(&command), "RUSTFLAGS='-Ca=b -Cc=d' cargo");
    }

    #[test]
    fn failure_names_the_command_and_the_code() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert_eq!(error, "`sh -c 'exit 3'` failed: exit status: 3");
        assert!(capture(Command::new("sh").args(["-c", "echo a; exit 3"])).is_none());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert!(find_program("a program that nobody has").is_none());
    }
}
