//! What only root can set up: without it a test fails, unless somebody has said that it is to go
//! without.

/// Set to `1` where nobody is root: what needs it is not checked then.
const WITHOUT_ROOT: &str = "ISOCHRONE_WITHOUT_ROOT";

/// Fails, unless this machine is declared to be without root; says what is not checked.
pub fn go_without(what: &str) {
    let declared = std::env::var_os(WITHOUT_ROOT).is_some_and(|value| value == "1");
    assert!(declared, "{what}; where that cannot be had, set {WITHOUT_ROOT}=1 to go without");
    eprintln!("NOT CHECKED: {what}");
}
