//! What a source does about input that is gone before it was read.

/// What happens when input that was not read yet is not there any more.
///
/// ```
/// use isochrone_connectors::{Files, OnDataLoss};
/// let log = Files::at("app.log").on_data_loss(OnDataLoss::ContinueFromEarliest).text();
/// # let _ = log;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDataLoss {
    /// The job stops and says how much is lost.
    #[default]
    Stop,
    /// The job goes on with the oldest input there is, and warns; how much was lost is in the
    /// position of the split and so in every checkpoint.
    ContinueFromEarliest,
}
