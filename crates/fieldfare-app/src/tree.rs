//! A conversation is a tree: what follows a message, which of several versions is shown, and how to get to another.

use fieldfare_app_worker::message::{Conversation, Message, MessageId};
use std::collections::HashMap;

/// Places of the messages in `conversation.messages` from the first question to the leaf.
pub fn path(conversation: &Conversation) -> Vec<usize> {
    let places: HashMap<MessageId, usize> =
        conversation.messages.iter().enumerate().map(|(place, message)| (message.id, place)).collect();
    let mut path = Vec::new();
    let mut next = conversation.leaf;
    while let Some(id) = next {
        let Some(place) = places.get(&id) else { break };
        // A parent that comes after its child would be a circle.
        if path.last().is_some_and(|last| place >= last) {
            break;
        }
        path.push(*place);
        next = conversation.messages[*place].parent;
    }
    path.reverse();
    path
}

/// Versions of a message in the order in which they were written, itself included.
pub fn versions(messages: &[Message], of: &Message) -> Vec<MessageId> {
    messages
        .iter()
        .filter(|other| other.parent == of.parent && other.role == of.role)
        .map(|other| other.id)
        .collect()
}

/// The end of the newest path through a message.
pub fn newest_below(messages: &[Message], mut id: MessageId) -> MessageId {
    // Parents come before children: more steps than messages would be a circle.
    for _ in 0..messages.len() {
        match messages.iter().rev().find(|other| other.parent == Some(id)) {
            Some(child) => id = child.id,
            None => break,
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use fieldfare_app_worker::message::{ConversationId, Role, Summary};

    fn message(id: i64, parent: Option<i64>, role: Role) -> Message {
        Message::new(MessageId(id), parent.map(MessageId), role, "")
    }

    fn conversation(leaf: i64) -> Conversation {
        Conversation {
            summary: Summary {
                id: ConversationId(1),
                title: String::new(),
                changed_at: 0,
                found: String::new(),
            },
            system: String::new(),
            messages: vec![
                message(1, None, Role::User),
                message(2, Some(1), Role::Assistant),
                message(3, Some(2), Role::User),
                message(4, Some(1), Role::Assistant),
                message(5, Some(4), Role::User),
                message(6, None, Role::User),
            ],
            leaf: Some(MessageId(leaf)),
        }
    }

    #[test]
    fn the_path_goes_from_the_first_question_to_the_leaf() {
        assert_eq!(path(&conversation(5)), vec![0, 3, 4]);
        assert_eq!(path(&conversation(6)), vec![5]);
        assert_eq!(path(&conversation(77)), Vec::<usize>::new());
        let mut circle = conversation(2);
        circle.messages[0].parent = Some(MessageId(2));
        assert_eq!(path(&circle), vec![0, 1], "a circle ends where it began");
    }

    #[test]
    fn versions_are_siblings_of_the_same_writer() {
        let conversation = conversation(5);
        assert_eq!(
            versions(&conversation.messages, &conversation.messages[3]),
            vec![MessageId(2), MessageId(4)]
        );
        assert_eq!(
            versions(&conversation.messages, &conversation.messages[0]),
            vec![MessageId(1), MessageId(6)]
        );
    }

    #[test]
    fn a_switch_goes_to_the_newest_end() {
        let conversation = conversation(5);
        assert_eq!(newest_below(&conversation.messages, MessageId(1)), MessageId(5));
        assert_eq!(newest_below(&conversation.messages, MessageId(2)), MessageId(3));
        assert_eq!(newest_below(&conversation.messages, MessageId(6)), MessageId(6));
    }
}
