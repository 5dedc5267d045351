//! A job with the state of its ranks: [`ObservedJob`].

use std::time::{Duration, Instant};

use fsgather::Rank;
use fsgather_core::{ProcessId, RollCall, process_state::state_of_process};
use fsgather_observe::trace::{
    black_box::BlackBox,
    roll_call,
    status::{RankStatus, statuses},
    timeline::Timeline,
    world::World,
};
use fsgather_store::calls::Question;
use serde_json::{Value, json};

use super::pauses::Pauses;
use crate::{table::plain, verbs::trace::calendar};

/// Maximum time that rank 0 may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// Time between two looks for an answer.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A job whose calls were found.
pub(super) struct ObservedJob {
    pub(super) world: World,
    pub(super) statuses: Vec<RankStatus>,
    /// The time since its ranks met, in nanoseconds.
    pub(super) age: u64,
    pub(super) stacks: Option<RollCall>,
    /// The reason for which there are no stacks.
    pub(super) problem: Option<String>,
}

impl ObservedJob {
    /// Returns the state of a world now.
    pub(super) fn new(world: World, me: &ProcessId) -> Self {
        let timeline = Timeline::new(world.boxes.clone());
        let calendar = calendar();
        let age = calendar - world.began().map_or(0, i128::from);
        Self {
            statuses: statuses(&timeline, timeline.now(me, calendar)),
            age: u64::try_from(age).unwrap_or_default(),
            stacks: None,
            problem: None,
            world,
        }
    }

    /// Leaves a question for rank 0, or records why it cannot be asked.
    fn ask(&mut self) -> Option<OpenQuestion> {
        let place = self
            .world
            .root()
            .and_then(|root| Some((root, root.path.parent()?)));
        let problem = match place {
            None => "rank 0, which could ask the others, is not seen from here".to_owned(),
            Some((root, _)) if !root.may_run() => {
                format!(
                    "rank {}, which could ask the others, has ended",
                    root.rank()
                )
            }
            Some((root, place)) => {
                match Question::ask(place, self.world.communicator, root.owner) {
                    Ok(question) => return Some(OpenQuestion(question)),
                    Err(error) => plain(&error.to_string()),
                }
            }
        };
        self.problem = Some(problem);
        None
    }

    /// Takes an answer, or records why there is none.
    fn take(&mut self, question: &Question, answer: Option<&str>, me: &ProcessId) {
        self.world.unread.extend(question.refused_answers());
        self.stacks = answer.and_then(roll_call::from_text);
        let is_silent = self.stacks.as_ref().is_none_or(RollCall::is_empty);
        if is_silent && self.world.is_over(me) {
            self.stacks = None;
            self.problem =
                Some("no rank has answered: the job has ended or failed meanwhile".into());
        } else if answer.is_none() {
            self.problem = Some(self.silence());
        }
    }

    /// Returns a sentence about a rank 0 that does not answer.
    fn silence(&self) -> String {
        let root = self.world.root();
        let rank = root.map_or(Rank::ZERO, BlackBox::rank);
        let seen = root.filter(|root| root.is_running == Some(true));
        let process = seen.map(|root| &root.header.process);
        let state = process.and_then(|process| state_of_process(process.pid, process.start_time));
        match state {
            Some(state) => format!("rank {rank} does not answer; its process is {state}"),
            None => format!(
                "rank {rank} does not answer; its process, which is not seen from here, may be stopped"
            ),
        }
    }

    /// Returns the entry of `jobs` in the JSON of `ps`.
    pub(super) fn to_json(&self) -> Value {
        let stacks = |stacks: &RollCall| -> Vec<Value> {
            let groups = stacks.groups.iter();
            let group = groups.map(|(ranks, activity)| {
                let frames = activity.frames.iter().map(ToString::to_string);
                let frames: Vec<String> = frames.collect();
                json!({"ranks": ranks, "text": activity.to_string(), "frames": frames})
            });
            group.collect()
        };
        json!({
            "job": self.world.job(),
            "directory": self.world.directory(),
            "communicator": self.world.communicator.to_string(),
            "world_size": self.world.size(),
            "ranks": self.statuses.iter().map(RankStatus::to_json).collect::<Vec<Value>>(),
            "stacks": self.stacks.as_ref().map(stacks),
            "problem": self.problem,
            "stacks_left_out": self.stacks.as_ref().map_or(0, |stacks| stacks.left_out),
        })
    }
}

/// A question that is withdrawn when its asker ends.
struct OpenQuestion(Question);

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// Asks all jobs at the same time for the stacks of their ranks, until all have answered, their time is over or a signal arrives.
pub(super) fn ask(jobs: &mut [ObservedJob], me: &ProcessId, pauses: &Pauses) {
    let asked = jobs.iter_mut().filter_map(|job| Some((job.ask()?, job)));
    let mut asked: Vec<(OpenQuestion, &mut ObservedJob)> = asked.collect();
    let begun = Instant::now();
    while !asked.is_empty() && begun.elapsed() < ANSWER_LIMIT && pauses.ended().is_none() {
        asked.retain_mut(|(question, job)| {
            let answer = question.0.look_for_answer();
            if answer.is_some() {
                job.take(&question.0, answer.as_deref(), me);
            }
            answer.is_none()
        });
        if !asked.is_empty() {
            pauses.pause(LOOK_INTERVAL);
        }
    }
    for (question, job) in asked {
        job.take(&question.0, None, me);
    }
}
