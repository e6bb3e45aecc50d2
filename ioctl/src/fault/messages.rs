//! Faults of Objective-C messages: the n-th message of a selector is answered by nil or an error, is lost, or fails the
//! command buffer that it commits. Written `SELECTOR:N:TROUBLE`, as `newBufferWithLength:options::2:nil`,
//! `newLibraryWithSource:options:error::1:error`, `commit:3:lose` (the command buffer hangs), `commit:3:fail`.

use super::Spec;
use crate::abi::{Message, Value};
use crate::port::objc::{Objc, Passed, Send, Tap};
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageTrouble {
    /// It is not sent; the answer is nil, zero or nothing.
    Nil,
    /// As `Nil`, and where the message has a place for an error, an error is stored there.
    Error,
    /// It is not sent, though it has no answer to tell: a commit that is lost is a command buffer that never ends.
    Lose,
    /// A commit is not sent, and the command buffer says from then on that it failed.
    Fail,
}

/// One trouble for the `nth` message of a selector, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFault {
    pub selector: String,
    pub nth: u64,
    pub trouble: MessageTrouble,
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {:?}", self.selector, self.nth, self.trouble)
    }
}

/// Reads a fault.
///
/// # Errors
/// In words.
pub fn message_fault(text: &str) -> Result<MessageFault, String> {
    // Selectors have colons of their own.
    let mut parts = text.rsplitn(3, ':');
    let (trouble, nth, selector) = (parts.next(), parts.next(), parts.next());
    let (Some(trouble), Some(nth), Some(selector)) = (trouble, nth, selector.filter(|s| !s.is_empty())) else {
        return Err(format!("--fault {text}: SELECTOR:N:TROUBLE is wanted"));
    };
    let spec = Spec::of(text, selector, nth, trouble)?;
    let trouble = match spec.trouble {
        "nil" => MessageTrouble::Nil,
        "error" => MessageTrouble::Error,
        "lose" => MessageTrouble::Lose,
        "fail" if selector == "commit" => MessageTrouble::Fail,
        _ => return Err(spec.wrong("a message's trouble is nil, error or lose, and that of commit also fail")),
    };
    Ok(MessageFault { selector: selector.into(), nth: spec.nth, trouble })
}

/// Domain of the errors that are made up.
const DOMAIN: &CStr = c"DoorbellInjectedFault";
/// Status of a command buffer that failed.
const FAILED: u64 = 5;

#[derive(Default)]
struct State {
    counts: HashMap<String, u64>,
    /// Command buffers that have failed.
    failed: HashSet<u64>,
    injected: Vec<MessageFault>,
}

/// The tap that injects faults.
pub struct MessageFaults {
    objc: Objc,
    plan: Vec<MessageFault>,
    state: Mutex<State>,
}

impl fmt::Debug for MessageFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageFaults({:?})", self.plan)
    }
}

impl MessageFaults {
    /// `objc` with these faults: errors are made by its functions.
    #[must_use]
    pub fn new(objc: Objc, plan: Vec<MessageFault>) -> Self {
        Self { objc, plan, state: Mutex::default() }
    }

    /// What has happened so far.
    #[must_use]
    pub fn injected(&self) -> Vec<MessageFault> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).injected.clone()
    }

    /// Counts a message; the trouble that is due.
    fn due(&self, message: &Message) -> Option<MessageTrouble> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.contains(&message.receiver) && ["status", "error"].contains(&&*message.selector) {
            return Some(MessageTrouble::Fail);
        }
        if !self.plan.iter().any(|fault| fault.selector == message.selector) {
            return None;
        }
        let count = state.counts.entry(message.selector.clone().into_owned()).or_insert(0);
        *count += 1;
        let nth = *count;
        let due = self.plan.iter().find(|fault| fault.selector == message.selector && fault.nth == nth)?;
        if due.trouble == MessageTrouble::Fail {
            state.failed.insert(message.receiver);
        }
        state.injected.push(due.clone());
        Some(due.trouble)
    }
}

impl Tap for MessageFaults {
    fn pass(&self, message: &mut Message, send: &mut Send<'_>) -> Passed {
        let Some(trouble) = self.due(message) else { return Passed::sent(send(message)) };
        let error = || self.objc.error(DOMAIN, 1).number();
        match (trouble, &*message.selector) {
            (MessageTrouble::Fail, "status") => return Passed::instead(Value::Unsigned(FAILED)),
            (MessageTrouble::Fail, "error") => return Passed::instead(Value::Object(error())),
            (MessageTrouble::Error, _) => {
                if let Some(slot) = message.arguments.iter_mut().find(|a| matches!(a, Value::Error(_))) {
                    *slot = Value::Error(error());
                }
            }
            _ => {}
        }
        Passed::instead(Value::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_by_selector_number_and_trouble() {
        let text = |spec| message_fault(spec).map(|f| f.to_string());
        assert_eq!(text("newSharedEvent:1:nil").unwrap(), "newSharedEvent 1: Nil");
        let buffer = text("newBufferWithLength:options::2:nil").unwrap();
        assert_eq!(buffer, "newBufferWithLength:options: 2: Nil");
        assert_eq!(text("commit:3:lose").unwrap(), "commit 3: Lose");
        for wrong in ["", "commit", "commit:0:lose", "commit:1:what", ":1:nil", "release:1:fail"] {
            assert!(text(wrong).unwrap_err().starts_with("--fault "), "{wrong}");
        }
    }
}
