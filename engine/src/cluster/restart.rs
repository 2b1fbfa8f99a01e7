//! Whether and when a failed set of processes starts again: a decision without I/O.

/// How often and how fast to start again.
///
/// ```
/// use isochrone_engine::cluster::{Next, RestartPolicy, Restarts};
/// let policy = RestartPolicy { limit: 2, ..RestartPolicy::default() };
/// let mut restarts = Restarts::new(policy);
/// assert_eq!(restarts.after_failure(0), Next::Restart { after_ms: policy.backoff_ms });
/// assert_eq!(restarts.after_failure(0), Next::Restart { after_ms: 2 * policy.backoff_ms });
/// assert_eq!(restarts.after_failure(0), Next::GiveUp);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPolicy {
    /// How many restarts in a row, without a healthy run between, are allowed.
    pub limit: u32,
    /// Wait before the first restart in a row; each further one waits twice as long.
    pub backoff_ms: u64,
    /// The longest wait.
    pub backoff_max_ms: u64,
    /// A run of this length was healthy: counting begins anew.
    pub healthy_after_ms: u64,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy {
            limit: 10,
            backoff_ms: 200,
            backoff_max_ms: 30_000,
            healthy_after_ms: 60_000,
        }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Start the set again after a wait.
    Restart {
        /// The wait.
        after_ms: u64,
    },
    /// The limit is reached.
    GiveUp,
}

/// The restarts of one supervised set.
#[derive(Debug)]
pub struct Restarts {
    policy: RestartPolicy,
    in_a_row: u32,
}

impl Restarts {
    /// None so far.
    pub fn new(policy: RestartPolicy) -> Restarts {
        Restarts { policy, in_a_row: 0 }
    }

    /// What to do after a run that failed when it had lasted so long.
    pub fn after_failure(&mut self, ran_ms: u64) -> Next {
        if ran_ms >= self.policy.healthy_after_ms {
            self.in_a_row = 0;
        }
        if self.in_a_row >= self.policy.limit {
            return Next::GiveUp;
        }
        let factor = 1_u64.checked_shl(self.in_a_row).unwrap_or(u64::MAX);
        let wait = self.policy.backoff_ms.saturating_mul(factor);
        self.in_a_row += 1;
        Next::Restart { after_ms: wait.min(self.policy.backoff_max_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RestartPolicy =
        RestartPolicy { limit: 100, backoff_ms: 10, backoff_max_ms: 45, healthy_after_ms: 1000 };

    #[test]
    fn waits_double_up_to_the_longest() {
        let mut restarts = Restarts::new(POLICY);
        let waits: Vec<Next> = (0..100).map(|_| restarts.after_failure(999)).collect();
        let after = |after_ms| Next::Restart { after_ms };
        assert_eq!(waits[..5], [after(10), after(20), after(40), after(45), after(45)]);
        assert_eq!(waits[99], after(45));
        assert_eq!(restarts.after_failure(999), Next::GiveUp);
    }

    #[test]
    fn a_healthy_run_begins_the_count_anew() {
        let mut restarts = Restarts::new(RestartPolicy { limit: 1, ..POLICY });
        for _ in 0..5 {
            assert_eq!(restarts.after_failure(1000), Next::Restart { after_ms: 10 });
        }
        assert_eq!(restarts.after_failure(999), Next::GiveUp);
    }

    #[test]
    fn no_restart_is_a_legal_limit() {
        let mut restarts = Restarts::new(RestartPolicy { limit: 0, ..POLICY });
        assert_eq!(restarts.after_failure(5000), Next::GiveUp);
    }
}
