SELECT next, folds, bytes, shed_stacks, shed_details, shed_messages, shed_extras
FROM histories WHERE task = ?1;
