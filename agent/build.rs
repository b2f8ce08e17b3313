//! Puts the eBPF object into the agent. It is built apart, by `cargo xtask build-ebpf`, since it needs another target; an
//! agent built without it says so when it starts.

use std::{env, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-env-changed=FLOWSKEW_EBPF_OBJECT");
    let object = match env::var_os("FLOWSKEW_EBPF_OBJECT") {
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).map_err(|error| format!("FLOWSKEW_EBPF_OBJECT {}: {error}", path.display()))?
        }
        None => {
            let path = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../target/ebpf/flowskew-ebpf.o");
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).unwrap_or_default()
        }
    };
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("flowskew-ebpf.o"), object)?;
    Ok(())
}
