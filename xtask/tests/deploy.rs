//! Checks of deploy/ that need no other program. In: manifests, dashboards and alert rules. Out: failures for what a
//! cluster or Grafana would refuse or silently ignore.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{Namespace, Service, ServiceAccount},
    networking::v1::NetworkPolicy,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

type Outcome = Result<(), Box<dyn Error>>;

fn files(folder: &str, suffix: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(folder);
    let entries = std::fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let files: Vec<_> = entries
        .into_iter()
        .map(|e| e.path())
        .filter(|p| p.to_string_lossy().ends_with(suffix))
        .collect();
    assert!(!files.is_empty(), "no file *{suffix}");
    Ok(files)
}

/// Reads an object as its Kubernetes type and writes it again: a field that the type does not know is lost on the way.
fn round_trip<T: Serialize + DeserializeOwned>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
}

#[test]
fn manifests_have_no_field_that_kubernetes_does_not_know() -> Outcome {
    let mut objects = 0;
    for file in files("kustomize/base", ".yaml")? {
        for object in serde_saphyr::from_multiple::<Value>(&std::fs::read_to_string(&file)?)? {
            let again = match object["kind"].as_str().unwrap_or_default() {
                "ClusterRole" => round_trip::<ClusterRole>(&object),
                "ClusterRoleBinding" => round_trip::<ClusterRoleBinding>(&object),
                "DaemonSet" => round_trip::<DaemonSet>(&object),
                "Deployment" => round_trip::<Deployment>(&object),
                "Namespace" => round_trip::<Namespace>(&object),
                "NetworkPolicy" => round_trip::<NetworkPolicy>(&object),
                "Service" => round_trip::<Service>(&object),
                "ServiceAccount" => round_trip::<ServiceAccount>(&object),
                // kustomize checks its own file.
                "Kustomization" => continue,
                other => return Err(format!("{}: kind {other:?} is not checked here", file.display()).into()),
            };
            assert_eq!(
                again.map_err(|e| format!("{}: {e}", file.display()))?,
                object,
                "{}",
                file.display()
            );
            objects += 1;
        }
    }
    assert!(objects >= 8, "only {objects} objects found");
    Ok(())
}

#[test]
fn every_panel_of_a_dashboard_asks_the_chosen_data_source() -> Outcome {
    for file in files("grafana", ".json")? {
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let panels = dashboard["panels"].as_array().ok_or("no panels")?;
        assert!(!panels.is_empty());
        for panel in panels {
            let title = panel["title"].as_str().ok_or("a panel has no title")?;
            let targets = panel["targets"].as_array().ok_or("a panel asks nothing")?;
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
                assert!(
                    target["expr"].as_str().is_some_and(|e| e.contains("flowskew_")),
                    "{title}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn every_metric_that_is_asked_for_exists() -> Outcome {
    // Registered names have no suffix; the text format adds it to counters.
    let registered: String = sources(&["aggregator/src/metrics", "agent/src"])?;
    for file in [files("grafana", ".json")?, files("alerts", ".rules.yaml")?].concat() {
        let text = std::fs::read_to_string(&file)?;
        let names = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|w| w.starts_with("flowskew_"));
        let mut asked = 0;
        for name in names {
            let quoted = format!("\"{}\"", name.trim_end_matches("_total"));
            assert!(
                registered.contains(&quoted),
                "{}: no program exports {name}",
                file.display()
            );
            asked += 1;
        }
        assert!(asked > 0, "{} asks for no metric", file.display());
    }
    Ok(())
}

/// The text of all Rust files in the folders.
fn sources(folders: &[&str]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for folder in folders {
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                text += &std::fs::read_to_string(path)?;
            }
        }
    }
    Ok(text)
}
