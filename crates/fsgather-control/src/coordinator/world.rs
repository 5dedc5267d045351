//! The properties of a world that are fixed before it forms: [`World`].

use std::time::Duration;

use fsgather_core::WorldSize;
use uuid::Uuid;

use crate::join::job_credentials::JobFingerprint;

/// The properties of a world that are fixed before it forms.
#[derive(Clone, Debug)]
pub struct World {
    /// Number of ranks.
    pub world_size: WorldSize,
    /// The identity of this world.
    pub communicator: Uuid,
    /// The name of this job in messages.
    pub job: String,
    /// Time without progress after which a call has failed.
    pub timeout: Duration,
    /// Maximum time for joining.
    pub join_timeout: Duration,
    /// Time without a sign of work after which a missing rank ends joining, if a launcher watches the ranks.
    pub idle_limit: Option<Duration>,
    /// The job of rank 0, and the secret that it was given.
    pub fingerprint: JobFingerprint,
    /// Time before a warning or a verdict at which missing ranks are asked what they are doing; none if they must not be asked.
    pub lead: Option<Duration>,
    /// True if a program introduces the ranks to each other; otherwise they find each other by the name of their job.
    pub is_introduced: bool,
    /// True if the user has named the job; ranks of several starts, such as terminals, may belong to it then.
    pub is_named: bool,
    /// True if no user has set the time-out; ranks that work get all the time that they need then.
    pub is_patient: bool,
}
