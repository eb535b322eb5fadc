INSERT INTO mutations (subject, operation, key, kind, eligibility_claim, fingerprint, status,
    response, answers, observed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10);
