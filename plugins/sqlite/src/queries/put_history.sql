INSERT INTO histories VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (task) DO UPDATE SET
    next = ?2, folds = ?3, bytes = ?4,
    shed_stacks = ?5, shed_details = ?6, shed_messages = ?7, shed_extras = ?8;
